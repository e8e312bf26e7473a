"""The part of SGLang's interface that our attention backend uses, for machines without SGLang."""

import sys
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from radixkv.attention import ScoreOptions
from radixkv.attention.reference import attend


class ForwardMode(IntEnum):
    EXTEND = auto()
    DECODE = auto()
    IDLE = auto()

    def is_decode(self):
        return self == ForwardMode.DECODE

    def is_decode_or_idle(self):
        return self in (ForwardMode.DECODE, ForwardMode.IDLE)

    def is_extend_without_speculative(self):
        return self == ForwardMode.EXTEND


@dataclass
class ForwardBatch:
    forward_mode: ForwardMode
    batch_size: int
    req_pool_indices: torch.Tensor
    seq_lens_cpu: torch.Tensor | None = None
    rids: list[str] | None = None
    out_cache_loc: torch.Tensor | None = None
    extend_prefix_lens_cpu: list[int] | None = None


class AttentionType(Enum):
    DECODER = "decoder"
    ENCODER_ONLY = "encoder_only"


class RadixAttention(torch.nn.Module):
    def __init__(self, num_heads, head_dim, scaling, num_kv_heads, layer_id, window=-1, cap=0.0):
        super().__init__()
        self.tp_q_head_num, self.tp_k_head_num = num_heads, num_kv_heads
        self.head_dim = self.qk_head_dim = self.v_head_dim = head_dim
        self.scaling, self.layer_id, self.logit_cap = scaling, layer_id, cap
        self.sliding_window_size, self.is_cross_attention = window, False
        self.attn_type, self.xai_temperature_len = AttentionType.DECODER, -1
        self.k_scale = self.v_scale = None

    def forward(self): ...


class AttentionBackend:
    needs_cpu_seq_lens = True

    def init_forward_metadata(self, forward_batch): ...
    def init_forward_metadata_out_graph(self, forward_batch, in_capture=False): ...
    def init_forward_metadata_in_graph(self, forward_batch): ...
    def init_cuda_graph_state(self, max_bs, max_num_tokens): ...
    def get_cuda_graph_seq_len_fill_value(self): ...
    def on_after_cuda_graph_warmup(self): ...
    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs): ...
    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs): ...
    def get_fused_kv_write_buffers(self, layer, forward_batch): ...


class HybridAttnBackend(AttentionBackend):
    def __init__(self, model_runner, prefill_backend, decode_backend):
        self.prefill_backend, self.decode_backend = prefill_backend, decode_backend

    def _select_backend(self, mode):
        return self.decode_backend if mode.is_decode_or_idle() else self.prefill_backend

    def init_forward_metadata(self, forward_batch):
        self._select_backend(forward_batch.forward_mode).init_forward_metadata(forward_batch)

    def init_forward_metadata_out_graph(self, forward_batch, in_capture=False):
        backend = self._select_backend(forward_batch.forward_mode)
        backend.init_forward_metadata_out_graph(forward_batch, in_capture=in_capture)

    def init_forward_metadata_in_graph(self, forward_batch):
        backend = self._select_backend(forward_batch.forward_mode)
        backend.init_forward_metadata_in_graph(forward_batch)

    def init_cuda_graph_state(self, max_bs, max_num_tokens):
        self.decode_backend.init_cuda_graph_state(max_bs, max_num_tokens)

    def forward(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs):
        backend = self._select_backend(forward_batch.forward_mode)
        return backend.forward_decode(q, k, v, layer, forward_batch, save_kv_cache, **kwargs)


class FlatBackend(AttentionBackend):
    """SGLang's own: each request by itself. steps: what it was asked to prepare."""

    def __init__(self, model_runner):
        self.runner, self.steps = model_runner, []

    def init_forward_metadata(self, forward_batch):
        self.steps.append(forward_batch.forward_mode)

    def init_forward_metadata_out_graph(self, forward_batch, in_capture=False):
        self.steps.append(forward_batch.forward_mode)

    def get_cuda_graph_seq_len_fill_value(self):
        return 1

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs):
        pool = self.runner.token_to_kv_pool
        if k is not None and save_kv_cache:
            pool.set_kv_buffer(layer, KVWriteLoc.for_layer(forward_batch, layer), k, v)
        window = layer.sliding_window_size + 1 or None
        options = ScoreOptions(layer.scaling, window, layer.logit_cap or None, kwargs.get("sinks"))
        keys, values = pool.get_kv_buffer(layer.layer_id)
        queries = q.view(len(q), 1, layer.tp_q_head_num, layer.head_dim)
        outputs = []
        places, lengths = forward_batch.req_pool_indices, forward_batch.seq_lens_cpu
        for query, place, length in zip(queries, places, lengths, strict=False):
            slots = self.runner.req_to_token_pool.req_to_token[place, : int(length)].long()
            outputs.append(attend(query, keys[slots].float(), values[slots].float(), options))
        return torch.cat(outputs).to(q.dtype).view(len(q), -1)


@dataclass
class KVWriteLoc:
    loc: torch.Tensor

    @classmethod
    def for_layer(cls, forward_batch, layer):
        return cls(forward_batch.out_cache_loc)


class KVPool:
    """SGLang's MHATokenToKVPool: a tensor for each layer's K, and one for its V."""

    kv_cache_layout = "nhd"

    def __init__(self, slots, layers, heads, dim, dtype, device):
        shape = (2, layers, slots, heads, dim)
        self.kv = torch.randn(shape, device=device).to(dtype)

    def get_kv_buffer(self, layer_id):
        return self.kv[0, layer_id], self.kv[1, layer_id]

    def set_kv_buffer(self, layer, loc_info, cache_k, cache_v, k_scale=None, v_scale=None):
        self.kv[0, layer.layer_id][loc_info.loc] = cache_k
        self.kv[1, layer.layer_id][loc_info.loc] = cache_v


class HookType(Enum):
    AFTER = "after"


class CaptureMode:
    """label: of the graph that is captured."""

    label: str | None = None

    @classmethod
    def get(cls):
        return cls.label


def new_runner(rows, layers, *, page_size=1, dtype=torch.float32, slots=None):
    """What SGLang's ModelRunner shows a backend.

    rows: (rows, width) int32, req_to_token. layers: `RadixAttention`s.
    """
    one = layers[0]
    slots = slots or int(rows.max()) + page_size
    pool = KVPool(slots, len(layers), one.tp_k_head_num, one.head_dim, dtype, rows.device)
    return SimpleNamespace(
        model=torch.nn.ModuleList(layers),
        device=rows.device,
        server_args=SimpleNamespace(),
        req_to_token_pool=SimpleNamespace(req_to_token=rows),
        token_to_kv_pool=pool,
        kv_cache_dtype=dtype,
        page_size=page_size,
        is_draft_worker=False,
        spec_algorithm=SimpleNamespace(is_speculative=lambda: False),
        prefill_attention_backend_str="radixkv",
        decode_attention_backend_str="radixkv",
        use_mla_backend=False,
        is_hybrid_swa=False,
        model_config=SimpleNamespace(is_encoder_decoder=False),
        kv_index_translator=SimpleNamespace(is_translating=False),
    )


def put(name: str, **members: Any) -> None:
    """Make members what `import name` finds."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        package = ".".join(parts[:end])
        if package not in sys.modules:
            sys.modules[package] = ModuleType(package)
            sys.modules[package].__path__ = []
    vars(sys.modules[name]).update(members)


def install() -> None:
    """With no backend of ours registered."""
    backends = dict.fromkeys(("torch_native", "triton", "fa3"), FlatBackend)
    choices = [*backends]
    hooks: dict[str, Any] = {}

    def register_attention_backend(name):
        return lambda make: backends.setdefault(name, make)

    class HookRegistry:
        @staticmethod
        def register(target, hook, hook_type=HookType.AFTER):
            hooks[target] = hook

        @staticmethod
        def apply_hooks(): ...

    def create_dsv41_candidate_graph_variants(runner, mode, width=0):
        (hook,) = hooks.values()
        return hook(None, runner, mode, width)

    srt = "sglang.srt"
    put(
        f"{srt}.arg_groups.choices",
        ATTENTION_BACKEND_CHOICES=choices,
        add_attention_backend_choices=choices.extend,
    )
    put(f"{srt}.configs.hybrid_arch", mambaish_config=lambda config: None)
    put(
        f"{srt}.layers.attention.attention_registry",
        ATTENTION_BACKENDS=backends,
        register_attention_backend=register_attention_backend,
    )
    put(f"{srt}.layers.attention.base_attn_backend", AttentionBackend=AttentionBackend)
    put(f"{srt}.layers.attention.hybrid_attn_backend", HybridAttnBackend=HybridAttnBackend)
    put(f"{srt}.layers.radix_attention", RadixAttention=RadixAttention, AttentionType=AttentionType)
    put(f"{srt}.mem_cache.memory_pool", KVWriteLoc=KVWriteLoc)
    info = {"ForwardBatch": ForwardBatch, "ForwardMode": ForwardMode}
    put(f"{srt}.model_executor.forward_batch_info", **info)
    put(
        f"{srt}.model_executor.runner.decode_cuda_graph_runner",
        create_dsv41_candidate_graph_variants=create_dsv41_candidate_graph_variants,
    )
    put(
        f"{srt}.model_executor.runner_utils.capture_mode",
        get_capture_attention_variant=CaptureMode.get,
    )
    put(f"{srt}.plugins.hook_registry", HookRegistry=HookRegistry, HookType=HookType)
