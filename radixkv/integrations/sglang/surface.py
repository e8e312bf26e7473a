"""What is used of SGLang, by name, and what the cache does not serve."""

import logging
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from radixkv.errors import BackendUnavailableError, InvalidArgumentError
from radixkv.tree import POLICIES

TESTED_VERSIONS = ("0.5.22", "0.5.23")

# Module -> class -> members. Of `Req` only what its class shows: it sets the rest as it is made.
USED = {
    "sglang.srt.mem_cache.base_prefix_cache": {
        "BasePrefixCache": (
            "reset match_prefix checkpoint evict evict_for_alloc inc_lock_ref dec_lock_ref lock "
            "unlock path_device_indices prefix_device_indices free_kv_row touch_prefix "
            "dfs_weight_order root_node_handle take_events evictable_size full_evictable_size "
            "protected_size full_protected_size total_size supports_prefix_sharing "
            "init_metrics_collector update_eviction_metrics"
        ),
        "MatchPrefixParams": "key req",
        "MatchResult": (
            "device_prefix_len last_device_node last_host_node best_match_node host_hit_length "
            "full_kv_hit_length"
        ),
        "EvictParams": "num_tokens",
        "EvictResult": "num_tokens_evicted",
        "IncLockRefResult": "delta",
        "DecLockRefResult": "delta",
        "DecLockRefParams": "",
        "TreeLock": "node receipt",
    },
    "sglang.srt.mem_cache.cache_init_params": {
        "CacheInitParams": (
            "req_to_token_pool token_to_kv_pool_allocator page_size is_eagle eviction_policy "
            "eviction_policy_config enable_metrics enable_kv_cache_events dynamo_kv_event_format "
            "kv_event_lora_names pp_rank attn_cp_rank"
        ),
    },
    "sglang.srt.mem_cache.registry": {
        "TreeCacheBuildContext": (
            "server_args params is_hybrid_swa is_hybrid_ssm enable_hierarchical_cache "
            "disable_radix_cache tp_rank"
        ),
        "default_radix_cache_factory": "",
    },
    "sglang.srt.mem_cache.radix_cache": {
        "RadixKey": "token_ids extra_key cache_salt is_bigram limit",
    },
    "sglang.srt.mem_cache.events": {
        "KVCacheEventRecorder": "record_store record_remove record_all_cleared take",
    },
    "sglang.srt.mem_cache.allocator": {"BaseTokenToKVPoolAllocator": "free_segment"},
    "sglang.srt.managers.schedule_batch": {
        "Req": "finished",
        "ReqKvInfo": "req_pool_idx cache_protected_len cache_inserted_len",
    },
}

log = logging.getLogger(__name__)


def host_version() -> str:
    """The version of SGLang that is installed."""
    try:
        return version("sglang")
    except PackageNotFoundError:
        return "of an unknown version"


def policies() -> list[str]:
    """What `--radix-eviction-policy` takes with this cache."""
    return list(POLICIES)


def check_host(
    flag: str = "--radix-cache-backend radixkv",
    used: dict[str, dict[str, str]] = USED,
    tested: tuple[str, ...] = TESTED_VERSIONS,
) -> None:
    """Raises BackendUnavailableError naming all that SGLang lacks; warns of an untested version.

    flag: what was asked for. used: as USED.
    """
    missing = list(_missing(used))
    if missing:
        raise BackendUnavailableError(
            f"{flag}: SGLang {host_version()} lacks {', '.join(missing)}; "
            f"radixkv is tested with {', '.join(tested)}",
            missing=missing,
        )
    if host_version() not in tested:
        log.warning(
            "radixkv is not tested with SGLang %s, but with %s; it has what is used of it",
            host_version(), ", ".join(tested),
        )  # fmt: skip


def _missing(used: dict[str, dict[str, str]]) -> Iterator[str]:
    for module_name, classes in used.items():
        try:
            module = import_module(module_name)
        except ImportError:
            yield module_name
            continue
        for name, members in classes.items():
            found = getattr(module, name, None)
            if found is None:
                yield f"{module_name}.{name}"
                continue
            yield from (f"{name}.{each}" for each in members.split() if not _has(found, each))


def _has(of: Any, member: str) -> bool:
    # A field without a default is no attribute of its class.
    return hasattr(of, member) or (
        is_dataclass(of) and any(field.name == member for field in fields(of))
    )


def check_served(ctx: Any) -> None:
    """Raises InvalidArgumentError naming each flag or kind of model that is not served."""
    refused = list(_refused(ctx))
    if refused:
        raise InvalidArgumentError(
            f"--radix-cache-backend radixkv does not serve {'; '.join(refused)}. "
            "Leave out what is named, or the backend",
            refused=refused,
        )


def _refused(ctx: Any) -> Iterator[str]:
    args, params = ctx.server_args, ctx.params
    kinds = {
        "models with sliding windows": ctx.is_hybrid_swa,
        "models with Mamba or other recurrent state": ctx.is_hybrid_ssm,
        "--enable-hierarchical-cache": ctx.enable_hierarchical_cache,
        "pools with a C128 sidecar": hasattr(params.req_to_token_pool, "req_to_c128_sidecar"),
    }
    yield from (name for name, is_asked in kinds.items() if is_asked)
    for flag in (
        "enable_streaming_session",
        "enable_session_radix_cache",
        "enable_lmcache",
        "enable_flexkv",
        "enable_unified_cache_external_linker",
    ):
        if getattr(args, flag, False):
            yield f"--{flag.replace('_', '-')}"
    policy = params.eviction_policy.lower()
    if policy not in POLICIES:
        yield f"--radix-eviction-policy {policy} (it serves {', '.join(POLICIES)})"
    if params.eviction_policy_config:
        yield "--radix-eviction-policy-config (its policies take no parameters)"
