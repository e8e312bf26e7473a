"""Our gRPC server beside SGLang's scheduler, over the very tree that it uses.

It answers match, probe, stats, watch, info, dump and integrity; whatever would change the cache is
the engine's alone, and refused. So a router of ours routes to SGLang, and `radixkv top` shows it.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn, cast

from radixkv.cache import PrefixCache
from radixkv.cache.events import EventLog
from radixkv.cache.stats import CacheStats, Totals
from radixkv.errors import StaleHandleError, UnsupportedError
from radixkv.rpc.tls import Tls
from radixkv.service.server.cache_server import CacheServer
from radixkv.tree import DEFAULT, Namespace, RadixTree, TokenIds
from radixkv.tree.content import Content

SETTING = "RADIXKV_SGLANG_"
# Of a slice of a check: about a millisecond.
_NODES = 1_024


class EngineCache:
    """What `CacheServer` asks of a `PrefixCache`, of a tree that belongs to an engine.

    tree, lock: the engine's; it holds the lock for each call. allocator: SGLang's.
    """

    capacity_estimator = None
    violations: tuple[str, ...] = ()

    def __init__(
        self, tree: RadixTree, lock: "threading.RLock", allocator: Any, totals: Totals
    ) -> None:
        self.tree, self.lock, self._allocator, self._totals = tree, lock, allocator, totals
        self.core, self.page_size, self.num_slots = tree.core, tree.page_size, allocator.size
        self.events, self.loans = EventLog(), NoLoans()

    @property
    def free_size(self) -> int:
        """Free slots."""
        return int(self._allocator.available_size())

    def present(self, namespace: Namespace) -> Namespace:
        """The namespace as it is stored: SGLang flushes when weights change, and names none."""
        return namespace

    def probe(
        self,
        token_ids: TokenIds,
        namespace: Namespace = DEFAULT,
        *,
        content: Content = (),
        checked: bool = False,
    ) -> int:
        """See `RadixTree.probe`."""
        with self.lock:
            return self.tree.probe(token_ids, namespace, content=content, checked=checked)

    def probe_batch(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT, *, checked: bool = False
    ) -> list[int]:
        """See `RadixTree.probe_batch`."""
        with self.lock:
            return self.tree.probe_batch(prompts, namespace, checked=checked)

    def match_lengths(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT, *, checked: bool = False
    ) -> list[int]:
        """See `RadixTree.match_lengths`."""
        with self.lock:
            return self.tree.match_lengths(prompts, namespace, checked=checked)

    def match_prefix(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        _refuse("slots, or spans of content: ask for lengths of token ids")

    match_batch = match_prefix

    def evict(self, num_tokens: int) -> NoReturn:
        """Refused."""
        _refuse("EvictPrefixes")

    def reset(self, force: bool = False) -> NoReturn:
        """Refused."""
        _refuse("ClearCache: POST /flush_cache to SGLang")

    def check_integrity(self) -> list[str]:
        """See `RadixTree.check_integrity`."""
        with self.lock:
            return self.tree.check_integrity()

    def check_in_steps(self) -> Iterator[list[str]]:
        """The same a slice at a time, between which the lock is free."""
        with self.lock:
            check = self.tree.begin_check()
        try:
            while not check.is_done:
                with self.lock:
                    lines = check.take(_NODES)
                yield lines
        except StaleHandleError:  # a flush in the middle
            yield self.check_integrity()
        finally:
            check.close()

    def stats(self) -> CacheStats:
        """Sizes and counters. live_requests: not known here, 0."""
        with self.lock:
            tree, free = self.tree, self.free_size
            return CacheStats(
                num_slots=self.num_slots,
                free=free,
                allocated=self.num_slots - free - tree.total_size,
                evictable=tree.evictable_size,
                protected=tree.protected_size,
                waiting=0,
                num_nodes=tree.num_nodes,
                live_requests=0,
                epoch=self.events.epoch,
                revision=self.events.revision,
                **asdict(self._totals),
            )


class NoLoans:
    """An engine that runs its own requests lends nothing."""

    pins: frozenset[Any] = frozenset()
    num_loaned = aside_size = 0

    def pin(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        _refuse("pins")

    def forget(self) -> list[Any]:
        """Nothing was lent."""
        return []


def serve(cache: EngineCache, settings: Mapping[str, str] = os.environ) -> CacheServer:
    """A started server, as the settings say.

    RADIXKV_SGLANG_LISTEN: HOST:PORT or unix:/path. _TOKENS: a TOML file of bearer tokens.
    _TLS_CERT, _TLS_KEY, _TLS_CA: PEM files. _INSECURE=1: an open address without encryption.
    _METRICS: HOST:PORT for Prometheus. All as the flags of `radixkv serve`.
    Raises ListenError for an address that is taken or open to the network, InvalidArgumentError for
    files that cannot be read.
    """

    def path(name: str) -> Path | None:
        value = settings.get(f"{SETTING}{name}")
        return Path(value) if value else None

    certificate, key, ca = (path(f"TLS_{name}") for name in ("CERT", "KEY", "CA"))
    server = CacheServer(
        cast(PrefixCache, cache),
        settings[f"{SETTING}LISTEN"],
        tokens=path("TOKENS"),
        tls=Tls(certificate, key, ca) if certificate or key or ca else None,
        insecure=settings.get(f"{SETTING}INSECURE", "0") not in ("", "0"),
        metrics=settings.get(f"{SETTING}METRICS") or None,
    )
    return server.start()


def _refuse(what: str) -> NoReturn:
    raise UnsupportedError(f"this server's engine is SGLang, which does not serve {what}")
