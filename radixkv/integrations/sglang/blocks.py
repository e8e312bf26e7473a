"""The events that SGLang publishes: whole pages, named and encoded by SGLang's own recorder.

It reads the nodes of SGLang's tree. A run of ours (what one insert added) looks to it like one.
"""

from array import array
from collections.abc import Iterable

import numpy as np
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.events import KVCacheEventRecorder
from sglang.srt.mem_cache.radix_cache import RadixKey

from radixkv.integrations.sglang.keys import Keys, first_token
from radixkv.tree import Namespace, Stored, Trimmed
from radixkv.tree.radix_tree import Change


class RunNode:
    """A run as `KVCacheEventRecorder` reads a node of SGLang's tree.

    hash_value, event_hash_value: the names of its pages, which the recorder fills in.
    """

    __slots__ = ("event_hash_value", "hash_value", "key", "parent")

    def __init__(self, key: RadixKey, parent: "RunNode | None") -> None:
        self.key, self.parent = key, parent
        self.hash_value: list[str] | None = None
        self.event_hash_value: list[str] | None = None

    def part(self, begin: int, end: int, page_size: int) -> "RunNode":
        """Its tokens from `begin` to `end`, named as they are."""
        part = RunNode(self.key[begin:end], self.parent)
        pages = slice(begin // page_size, end // page_size)
        part.hash_value = self.hash_value and self.hash_value[pages]
        part.event_hash_value = self.event_hash_value and self.event_hash_value[pages]
        return part


class BlockEvents:
    """Follows the changes of one tree."""

    def __init__(self, params: CacheInitParams, keys: Keys) -> None:
        self._page_size, self._keys = params.page_size, keys
        self._recorder = KVCacheEventRecorder(
            enabled=True,
            page_size=params.page_size,
            dynamo_format=params.dynamo_kv_event_format,
            lora_names=params.kv_event_lora_names,
        )
        self.clear()

    def clear(self) -> None:
        """Everything was forgotten."""
        root = RunNode(RadixKey(array("q")), None)
        root.hash_value = []
        self._root = root
        self._runs: dict[int, RunNode] = {}
        self._recorder.record_all_cleared()

    def append(self, changes: Iterable[Change]) -> None:
        """Record what changed, in order."""
        for change in changes:
            if isinstance(change, Stored):
                self._store(change)
            else:
                self._trim(change)

    def take(self) -> list[object]:
        """What was recorded since the last call, as SGLang publishes it."""
        events: list[object] = self._recorder.take()
        return events

    def _store(self, change: Stored) -> None:
        parent, before = self._root, None
        if change.parent_run:
            above = self._runs[change.parent_run]
            parent = above.part(0, change.parent_offset, self._page_size)
            before = int(above.key.token_ids[len(parent.key.token_ids) - 1])
        node = RunNode(self._key(change, before), parent)
        self._runs[change.run] = node
        self._recorder.record_store(node)

    def _trim(self, change: Trimmed) -> None:
        node = self._runs[change.run]
        self._recorder.record_remove(node.part(change.keep, len(node.key), self._page_size))
        if change.keep:
            kept = node.part(0, change.keep, self._page_size)
            self._runs[change.run] = kept
        else:
            del self._runs[change.run]

    def _key(self, change: Stored, before: int | None) -> RadixKey:
        """before: the token in front of the run; None: it is the first."""
        ids, space = self._keys.widen(change.codes), change.namespace
        extra_key = space.extra_key
        if self._keys.is_eagle:
            first = first_token(space) if before is None else before
            ids = np.concatenate([np.array([first]), ids])
            extra_key = (extra_key or "").partition(" ")[2] or None
        return RadixKey(
            array("q", ids.tobytes()),
            _joined(extra_key, space),
            is_bigram=self._keys.is_eagle,
            cache_salt=space.salt,
        )


def _joined(extra_key: str | None, space: Namespace) -> str | None:
    """The extra key as SGLang has it: the adapter's id behind the caller's."""
    return extra_key if space.adapter is None else (extra_key or "") + space.adapter
