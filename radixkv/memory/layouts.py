"""What kernels take of a KV pool: its layout in memory, its page sizes and dtypes.

Layouts are in the letters of vLLM's `KVCacheLayout`, the outermost first: L layer, B page (block),
H KV head, N slot of the page, C what lies together for one head and slot.
"""

from typing import NamedTuple


class Layout(NamedTuple):
    """What one kernel takes of the pools of one kind.

    kernel: a backend's name in `get_backend`, or of others in their own words. attention: "MHA" (K
    and V of each KV head, GQA and MQA among it) or "MLA" (latents). layout, page_sizes, dtypes,
    needs: for people.
    """

    kernel: str
    attention: str
    layout: str
    page_sizes: str
    dtypes: str
    needs: str


_MHA = "K and V, each [L, B, N, H, C = head_dim]"
_MLA = "[L, B, N, H = 1, C = kv_lora_rank + qk_rope_head_dim]"
_ALL = "float32, float16, bfloat16, fp8_e4m3"

# Ours first: the pools are `MHATokenToKVPool` and `MLATokenToKVPool`.
LAYOUTS = (
    Layout("reference", "MHA", _MHA, "any", _ALL, "any device"),
    Layout("reference", "MLA", _MLA, "any", _ALL, "any device"),
    Layout("triton", "MHA", _MHA, "any", _ALL, "CUDA"),
    Layout("triton", "MLA", _MLA, "any", _ALL, "CUDA"),
    Layout("tree", "MHA", _MHA, "any", _ALL, "CUDA; its own kernels on compute capability 9.0"),
    Layout(
        "tree", "MLA", _MLA, "any", _ALL, "CUDA; its own kernel on compute capability 9.0, 512 + 64"
    ),
    Layout(
        "fa3", "MHA", _MHA, "any", "float16, bfloat16, fp8_e4m3",
        "sgl-kernel, compute capability 8 or 9, head_dim a multiple of 8 up to 256",
    ),
    Layout(
        "fa3", "MLA", _MLA, "any", "float16, bfloat16",
        "sgl-kernel, compute capability 9, 512 + 64",
    ),
    Layout(
        "flashmla", "MLA", _MLA, "64", "float16, bfloat16",
        "sgl-kernel, compute capability 9, 512 + 64; what is not decode goes to fa3",
    ),
    Layout(
        "FlashAttention 3 in vLLM", "MHA", "[L, B, H, N, C = K, V] or [L, B, N, H, C = K, V]",
        "multiples of 16", "float16, bfloat16, fp8_e4m3", "compute capability 9",
    ),
    Layout(
        "CUTLASS MLA in sgl-kernel", "MLA", "[L, B, N, H = 1, C = 512 + 64]", "divisors of 128",
        "float16, bfloat16", "compute capability 10",
    ),
    Layout(
        "FlashInfer", "MHA",
        "K and V, each [L, B, N, H, C] (NHD) or [L, B, H, N, C] (HND), or as one [L, B, 2, ...]",
        "any", "float16, bfloat16, fp8", "compute capability 7.5 and later",
    ),
    Layout(
        "FlashInfer", "MLA", "latents [L, B, N, C = 512] and rotary keys [L, B, N, C = 64]", "any",
        "float16, bfloat16", "compute capability 8 and later",
    ),
)  # fmt: skip


def markdown() -> str:
    """The table as docs/attention.md has it."""
    head = [field.replace("_", " ") for field in Layout._fields]
    lines = [head, ["---"] * len(head), *LAYOUTS]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
