"""How SGLang finds the attention backend, and what it refuses."""

import logging
import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch

from radixkv.errors import InvalidArgumentError
from radixkv.integrations.sglang import surface

NAME = "radixkv"
FLAG = f"--attention-backend {NAME}"
# A setting: "auto", or "tree" or "flat" to take that always.
MODE = "RADIXKV_SGLANG_ATTENTION"
TESTED_VERSIONS = ("0.5.23",)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)

# Decides the labels under which SGLang captures a batch size, and which of them it replays.
VARIANTS = (
    "sglang.srt.model_executor.runner.decode_cuda_graph_runner"
    ".create_dsv41_candidate_graph_variants"
)

# As `surface.USED`.
USED = {
    "sglang.srt.layers.attention.attention_registry": {"ATTENTION_BACKENDS": ""},
    "sglang.srt.layers.attention.base_attn_backend": {
        "AttentionBackend": (
            "init_forward_metadata init_forward_metadata_out_graph init_forward_metadata_in_graph "
            "init_cuda_graph_state get_cuda_graph_seq_len_fill_value on_after_cuda_graph_warmup "
            "forward_decode forward_extend get_fused_kv_write_buffers needs_cpu_seq_lens"
        ),
    },
    "sglang.srt.layers.attention.hybrid_attn_backend": {"HybridAttnBackend": ""},
    "sglang.srt.layers.radix_attention": {"RadixAttention": "forward", "AttentionType": "DECODER"},
    "sglang.srt.mem_cache.memory_pool": {"KVWriteLoc": "for_layer"},
    "sglang.srt.model_executor.forward_batch_info": {
        "ForwardBatch": "forward_mode rids req_pool_indices seq_lens_cpu extend_prefix_lens_cpu",
        "ForwardMode": "is_decode is_extend_without_speculative",
    },
    "sglang.srt.model_executor.runner.decode_cuda_graph_runner": {
        "create_dsv41_candidate_graph_variants": "",
    },
    "sglang.srt.model_executor.runner_utils.capture_mode": {"get_capture_attention_variant": ""},
    "sglang.srt.plugins.hook_registry": {"HookRegistry": "register apply_hooks", "HookType": ""},
}

log = logging.getLogger(__name__)


def offer() -> None:
    """Offer the backend to SGLang as `--attention-backend radixkv`.

    What stands against it is logged in one line, as by `plugin.register`.
    """
    try:
        from sglang.srt.arg_groups.choices import (
            ATTENTION_BACKEND_CHOICES,
            add_attention_backend_choices,
        )
        from sglang.srt.layers.attention.attention_registry import (
            ATTENTION_BACKENDS,
            register_attention_backend,
        )
    except ImportError as error:
        log.error(
            "%s is not offered: SGLang %s has no registry of attention backends that radixkv "
            "knows (%s); it is tested with %s",
            FLAG, surface.host_version(), error, ", ".join(TESTED_VERSIONS),
        )  # fmt: skip
        return
    registered = ATTENTION_BACKENDS.get(NAME)
    if registered is not None:
        log.error(
            "the attention backend %r is already registered, by %s; it stays as it is: uninstall "
            "one of the packages that register it",
            NAME, registered.__module__,
        )  # fmt: skip
        return
    register_attention_backend(NAME)(build)
    if NAME not in ATTENTION_BACKEND_CHOICES:
        add_attention_backend_choices([NAME])


def build(runner: Any) -> Any:
    """The backend of a model runner: the factory that SGLang's registry calls, in each rank.

    Raises BackendUnavailableError where SGLang lacks what is used of it, InvalidArgumentError for a
    flag or a model that is not served.
    """
    surface.check_host(FLAG, USED, TESTED_VERSIONS)
    layers = [*attention_layers(runner.model)]
    check_served(runner, layers)
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS

    from radixkv.integrations.sglang.attention.backend import RadixKVAttention, TreeDecode
    from radixkv.integrations.sglang.attention.rows import HostRows
    from radixkv.integrations.sglang.attention.step import Pool, TreeStep

    mode = _mode()
    flat = ATTENTION_BACKENDS[flat_backend(runner)](runner)
    plain = [layer for layer in layers if is_plain(layer)]
    one, rows = plain[0], runner.req_to_token_pool.req_to_token
    pool = Pool(
        one.tp_k_head_num, one.head_dim, runner.kv_cache_dtype, rows.device, runner.page_size
    )
    decode = TreeDecode(
        runner.token_to_kv_pool,
        HostRows(rows, runner.page_size),
        TreeStep(pool, one.tp_q_head_num, rows, mode),
        flat,
        [layer.layer_id for layer in plain if _heads(layer) == _heads(one)],
        len(layers),
    )
    _hook()
    return RadixKVAttention(runner, flat, decode)


def _mode() -> str:
    from radixkv.integrations.sglang.attention.step import MODES

    mode = os.environ.get(MODE, "auto")
    if mode not in MODES:
        raise InvalidArgumentError(f"{MODE} must be {', '.join(MODES)}; got {mode!r}", mode=mode)
    return mode


def attention_layers(model: torch.nn.Module) -> Iterator[Any]:
    """The layers of a model of SGLang's that attend."""
    kind = import_module("sglang.srt.layers.radix_attention").RadixAttention
    return (module for module in model.modules() if isinstance(module, kind))


def is_plain(layer: Any) -> bool:
    """Whether a tree can run it: causal, of all tokens before."""
    kind = import_module("sglang.srt.layers.radix_attention").AttentionType
    return (
        layer.attn_type == kind.DECODER
        and not layer.is_cross_attention
        and layer.sliding_window_size < 0
        and layer.xai_temperature_len <= 0
        and layer.qk_head_dim == layer.v_head_dim
    )


def _heads(layer: Any) -> tuple[int, int, int]:
    return layer.tp_q_head_num, layer.tp_k_head_num, layer.head_dim


def flat_backend(runner: Any) -> str:
    """The name of SGLang's own backend for all that is not on a tree: its default here."""
    if torch.device(runner.device).type == "cpu":
        return "torch_native"
    return "fa3" if torch.cuda.get_device_capability()[0] in (8, 9) else "triton"


def check_served(runner: Any, layers: list[Any]) -> None:
    """Raises InvalidArgumentError naming each flag or kind of model that is not served."""
    refused = [*_refused(runner), *_refused_models(runner, layers)]
    if refused:
        raise InvalidArgumentError(
            f"{FLAG} does not serve {'; '.join(refused)}. Leave out what is named, or the backend",
            refused=refused,
        )


def _refused(runner: Any) -> Iterator[str]:
    args = runner.server_args
    backends = {runner.prefill_attention_backend_str, runner.decode_attention_backend_str}
    flags = {
        "speculative decoding": runner.is_draft_worker or runner.spec_algorithm.is_speculative(),
        "another --prefill-attention-backend or --decode-attention-backend": backends != {NAME},
        "--disaggregation-mode": getattr(args, "disaggregation_mode", "null") != "null",
        "--dcp-size": getattr(args, "dcp_size", 1) > 1,
        "--attn-cp-size": getattr(args, "attn_cp_size", 1) > 1,
        "--dllm-algorithm": bool(getattr(args, "dllm_algorithm", None)),
    }
    yield from (name for name, is_asked in flags.items() if is_asked)
    for flag in (
        "enable_mixed_chunk",
        "enable_two_batch_overlap",
        "enable_pdmux",
        "enable_hisparse",
    ):
        if getattr(args, flag, False):
            yield f"--{flag.replace('_', '-')}"


def _refused_models(runner: Any, layers: list[Any]) -> Iterator[str]:
    hybrid = import_module("sglang.srt.configs.hybrid_arch").mambaish_config
    pool = runner.token_to_kv_pool
    kinds = {
        "models with latent attention (MLA)": runner.use_mla_backend,
        "models with an encoder": runner.model_config.is_encoder_decoder,
        "models with Mamba or other recurrent state": hybrid(runner.model_config) is not None,
        "models whose windows have a KV pool of their own": runner.is_hybrid_swa,
        "slots that are translated": runner.kv_index_translator.is_translating,
    }
    yield from (name for name, is_asked in kinds.items() if is_asked)
    if runner.kv_cache_dtype not in DTYPES:
        yield f"--kv-cache-dtype {runner.kv_cache_dtype} (it serves bfloat16, float16 and float32)"
    layout = getattr(pool, "kv_cache_layout", "nhd")
    if layout != "nhd":
        yield f"a KV pool laid out as {layout} (it serves nhd)"
    if not any(map(is_plain, layers)):
        yield "models of which each layer has a window or is not causal"


def _hook() -> None:
    """Have SGLang ask us under which labels to capture; again, it changes nothing."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(VARIANTS, graph_variants, HookType.AFTER)
    HookRegistry.apply_hooks()


def graph_variants(found: Any, runner: Any, mode: Any, *_: Any, **__: Any) -> Any:
    """The labels of a runner's decode graphs; None where its attention is not ours."""
    backend = getattr(runner.attn_backend, "decode_backend", None)
    return backend if found is None and mode.is_decode() and hasattr(backend, "select") else None
