"""The readable core: checks what callers give, and does the rest with `Nodes`."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from radixkv.arguments import as_int, at_least, check_page_size
from radixkv.arrays import Int32Array
from radixkv.errors import InvalidArgumentError, InvalidSlotsError
from radixkv.pages import round_up
from radixkv.tree.content import Content, ContentSpan, cut_content
from radixkv.tree.integrity import check_nodes
from radixkv.tree.namespace import DEFAULT, Namespace, check_namespace
from radixkv.tree.nodes import Nodes
from radixkv.tree.policies import get_policy
from radixkv.tree.radix_tree import (
    NO_CHANGES,
    AdmitResult,
    Changes,
    Handle,
    InsertResult,
    Ledger,
    MatchResult,
    NodeInfo,
    PublishResult,
    RadixTree,
)
from radixkv.tree.reader import PYTHON_READER, TokenIds


class PythonRadixTree(RadixTree):
    """See `RadixTree`. nodes: what the tree holds; only for looking."""

    core = "python"

    def __init__(self, page_size: int = 1, policy: str = "lru") -> None:
        check_page_size(page_size)
        self.page_size = page_size
        self.policy = policy
        self.nodes = Nodes(page_size, get_policy(policy))

    @property
    def epoch(self) -> int:  # type: ignore[override]  # read-only here
        return self.nodes.epoch

    # ---- looking ----

    def match_prefix(
        self,
        token_ids: TokenIds,
        namespace: Namespace = DEFAULT,
        *,
        content: Content = (),
        checked: bool = False,
    ) -> MatchResult:
        codes = self._encode(token_ids, content, checked)
        check_namespace(namespace)
        return self.nodes.match(codes, namespace)

    def probe(
        self, token_ids: TokenIds, namespace: Namespace = DEFAULT, *, content: Content = ()
    ) -> int:
        codes = self._encode(token_ids, content, False)
        check_namespace(namespace)
        return self.nodes.find(codes, namespace).length

    def _encode(self, token_ids: TokenIds, content: Content, checked: bool) -> Int32Array:
        tokens = cast("Int32Array", token_ids) if checked else PYTHON_READER.token_ids(token_ids)
        return self.nodes.content.encode(tokens, content, intern=False)

    def match_batch(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT, *, checked: bool = False
    ) -> list[MatchResult]:
        keys: Sequence[Any] = prompts if checked else PYTHON_READER.prompts(prompts)
        check_namespace(namespace)
        return [self.nodes.match(codes, namespace) for codes in keys]

    def match_lengths(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT, *, checked: bool = False
    ) -> list[int]:
        return [match.length for match in self.match_batch(prompts, namespace, checked=checked)]

    def probe_batch(self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT) -> list[int]:
        keys = PYTHON_READER.prompts(prompts)
        check_namespace(namespace)
        return [self.nodes.find(codes, namespace).length for codes in keys]

    # ---- locks ----

    def inc_lock_ref(self, handle: Handle) -> None:
        self.nodes.lock(handle)

    def dec_lock_ref(self, handle: Handle) -> None:
        self.nodes.unlock(handle)

    # ---- changing ----

    def insert(
        self,
        token_ids: TokenIds,
        slots: TokenIds,
        namespace: Namespace = DEFAULT,
        *,
        content: Content = (),
        priority: int = 0,
        chunked: bool = False,
        after: Handle | None = None,
        checked: bool = False,
    ) -> InsertResult:
        check_namespace(namespace)
        priority = as_int(priority, "priority")
        known = self.nodes.known(after, namespace)
        tokens, own_slots = cast("Int32Array", token_ids), cast("Int32Array", slots)
        if not checked:
            tokens, own_slots = PYTHON_READER.token_ids(token_ids), PYTHON_READER.slots(slots)
        _check_lengths(known.length, len(tokens), len(own_slots))
        return self.nodes.insert(
            self.nodes.content.encode(tokens, content, intern=True), own_slots, namespace,
            priority=priority, chunked=chunked, known=known,
        )  # fmt: skip

    def evict(self, num_tokens: int) -> Int32Array:
        return self.nodes.evict(round_up(_count(num_tokens, "num_tokens"), self.page_size))

    def reset(self) -> Int32Array:
        slots = self.all_slots()
        self.nodes.clear()
        return slots

    # ---- the steps of a request, whose arguments were checked ----

    def admit(
        self,
        token_ids: Int32Array,
        ledger: Ledger,
        row: Int32Array,
        namespace: Namespace = DEFAULT,
        *,
        content: Sequence[ContentSpan] = (),
        max_cached: int | None = None,
        extra: int = 0,
    ) -> AdmitResult:
        nodes = self.nodes
        limit = len(token_ids) if max_cached is None else _count(max_cached, "max_cached")
        needed = len(token_ids) + _count(extra, "extra")
        needed += -needed % self.page_size
        _check_row(row, needed)
        codes = token_ids[:limit]
        if content:
            spans = cut_content(content, limit)
            codes = nodes.content.encode_spans(codes, spans, intern=False)
        length, matched, handle = nodes.match(codes, namespace)
        # Lock before judging capacity: what is about to be used is not evictable.
        nodes.lock(handle)
        slots, evicted = None, 0
        try:
            slots = ledger.take(needed - length)  # mostly there is room
            if slots is None:
                slots, evicted = self.take(needed - length, ledger)
        finally:  # a fence may raise too
            if slots is None:
                nodes.unlock(handle)
        if slots is None:
            return AdmitResult(0, None, evicted)
        row[:length] = matched
        row[length:needed] = slots
        return AdmitResult(length, handle, evicted)

    def publish(
        self,
        token_ids: Int32Array,
        ledger: Ledger,
        row: Int32Array,
        namespace: Namespace = DEFAULT,
        *,
        content: Sequence[ContentSpan] = (),
        priority: int = 0,
        chunked: bool = False,
        held: Handle | None = None,
        fence: Any = None,
    ) -> PublishResult:
        nodes, size = self.nodes, len(token_ids)
        known = nodes.known(held, namespace)
        _check_known(known.length, size)
        _check_row(row, size)
        own = row[known.length : size]
        ledger.check_range(own)
        codes = token_ids
        if content:
            codes = nodes.content.encode_spans(token_ids, content, intern=True)
        there, found, handle = nodes.insert(
            codes, own, namespace, priority=priority, chunked=chunked, known=known
        )
        nodes.lock(handle)
        if held is not None:
            nodes.unlock(held)
        duplicates = row[known.length : there].copy()
        row[known.length : there] = found
        ledger.give_back(duplicates, fence)
        return PublishResult(there, handle)

    # ---- sizes, changes, inspection ----

    @property
    def evictable_size(self) -> int:
        return self.nodes.evictable

    @property
    def protected_size(self) -> int:
        return self.nodes.protected

    @property
    def num_nodes(self) -> int:
        return self.nodes.num_nodes

    def track_changes(self) -> None:
        if self.nodes.changes is None:
            self.nodes.changes = []

    def take_changes(self) -> Changes:
        taken = self.nodes.changes
        if not taken:
            return NO_CHANGES
        self.nodes.changes = []
        return Changes(taken)

    def walk(self) -> Iterator[NodeInfo]:
        for namespace, node in self.nodes.walk():
            parent = node.parent
            yield NodeInfo(
                node.id, parent.id if parent else 0, namespace, node.start, node.codes, node.slots,
                node.lock_ref, node.recency, node.hit_count, node.priority, not node.children,
                node.run, node.run_offset,
            )  # fmt: skip

    def check_integrity(self) -> list[str]:
        return check_nodes(self.nodes)

    def __getstate__(self) -> dict[str, Any]:
        return {"made": (self.page_size, self.policy), "nodes": self.nodes.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["made"])  # type: ignore[misc]
        self.nodes.restore(state["nodes"])


def _check_lengths(known: int, tokens: int, slots: int) -> None:
    _check_known(known, tokens)
    if tokens - known != slots:
        raise InvalidSlotsError(
            f"slots must be one for each of {tokens - known} token_ids; got {slots}",
            token_ids=tokens - known,
            slots=slots,
        )


def _check_known(known: int, tokens: int) -> None:
    if known > tokens:
        raise InvalidArgumentError(
            f"after must be no longer than the {tokens} token_ids; got {known} tokens"
        )


def _count(value: int, name: str) -> int:
    return value if type(value) is int and value >= 0 else at_least(0, **{name: value})


def _check_row(row: Int32Array, size: int) -> None:
    is_row = isinstance(row, np.ndarray) and row.dtype == np.int32 and row.ndim == 1
    if not is_row or len(row) < size or not row.flags.writeable:
        raise InvalidArgumentError(
            f"row must be a writable int32 array of at least {size} slots; got {_shown_row(row)}"
        )


def _shown_row(row: object) -> str:
    if not isinstance(row, np.ndarray):
        return type(row).__name__
    shown = f"{row.dtype} of shape {row.shape}"
    return shown if row.flags.writeable else f"{shown}, read-only"
