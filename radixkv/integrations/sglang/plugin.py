"""How SGLang gets to know of the cache and of the attention backend: two flags, each by itself."""

import logging
import os
from pathlib import Path
from typing import Any

from radixkv.errors import BackendUnavailableError
from radixkv.integrations.sglang import surface
from radixkv.integrations.sglang.attention.offer import offer
from radixkv.tree.shares import NO_SHARES, Shares
from radixkv.tree.shares_file import read_shares

NAME = "radixkv"

log = logging.getLogger(__name__)


def register() -> None:
    """Offer the cache to SGLang as `--radix-cache-backend radixkv` and attention as
    `--attention-backend radixkv`; it calls this in each process.

    What stands against either is logged in one line: an exception would be a traceback in every
    process, of those too who chose neither.
    """
    _offer_cache()
    offer()


def _offer_cache() -> None:
    try:
        from sglang.srt.arg_groups.choices import (
            RADIX_EVICTION_POLICY_CHOICES,
            add_radix_eviction_policy_choices,
        )
        from sglang.srt.mem_cache.registry import (
            get_radix_cache_factory,
            register_radix_cache_backend,
        )
    except ImportError as error:
        log.error(
            "--radix-cache-backend %s is not offered: SGLang %s has no registry of prefix caches "
            "that radixkv knows (%s); it is tested with %s",
            NAME, surface.host_version(), error, ", ".join(surface.TESTED_VERSIONS),
        )  # fmt: skip
        return
    registered = get_radix_cache_factory(NAME)
    if registered is not None:
        log.error(
            "the radix cache backend %r is already registered, by %s; it stays as it is: "
            "uninstall one of the packages that register it",
            NAME, registered.__module__,
        )  # fmt: skip
        return
    register_radix_cache_backend(NAME, build)
    more = [name for name in surface.policies() if name not in RADIX_EVICTION_POLICY_CHOICES]
    add_radix_eviction_policy_choices(more)


def build(ctx: Any) -> Any:
    """The cache for a scheduler: the factory that SGLang's registry calls, in each rank.

    Raises BackendUnavailableError where SGLang lacks what is used of it, InvalidArgumentError for a
    flag or a model that is not served.
    """
    surface.check_host()
    if ctx.disable_radix_cache:
        from sglang.srt.mem_cache.registry import default_radix_cache_factory

        return default_radix_cache_factory(ctx)
    surface.check_served(ctx)
    from radixkv.integrations.sglang.cache import RadixKVCache

    left = ", ".join(sorted(RadixKVCache.__abstractmethods__))
    if left:
        raise BackendUnavailableError(
            f"--radix-cache-backend {NAME}: SGLang {surface.host_version()} asks a prefix cache "
            f"for {left}, which radixkv does not have; it is tested with "
            f"{', '.join(surface.TESTED_VERSIONS)}",
            missing=left,
        )
    cache = RadixKVCache(ctx.params, shares=_shares())
    if _is_first_rank(ctx):
        _serve_beside(cache)
    return cache


def _shares() -> Shares:
    """Those of the TOML file that RADIXKV_SGLANG_SHARES names, as `radixkv serve --shares`."""
    path = os.environ.get("RADIXKV_SGLANG_SHARES")
    return read_shares(Path(path)) if path else NO_SHARES


def _is_first_rank(ctx: Any) -> bool:
    params = ctx.params
    return not (ctx.tp_rank or params.pp_rank or params.attn_cp_rank)


def _serve_beside(cache: Any) -> None:
    """A gRPC server over the cache, if RADIXKV_SGLANG_LISTEN names an address for it."""
    if not os.environ.get("RADIXKV_SGLANG_LISTEN"):
        return
    from radixkv.integrations.sglang import service

    allocator = cache.token_to_kv_pool_allocator
    seen = service.EngineCache(cache.tree, cache.tree_lock, allocator, cache.totals)
    cache.follow(seen.events)
    cache.server = service.serve(seen)
    log.info("radixkv: listening on %s, beside SGLang's scheduler", cache.server.address)
