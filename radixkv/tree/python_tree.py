"""The readable core: checks what callers give, and does the rest with `Nodes`."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from radixkv.arguments import as_flag, as_int, at_least, check_page_size, check_whole_pages
from radixkv.arrays import EMPTY, Int32Array, Int64Array
from radixkv.errors import InvalidArgumentError, InvalidSlotsError, OutOfSlotsError
from radixkv.pages import round_down, round_up
from radixkv.tree.content import Content, ContentSpan, cut_content
from radixkv.tree.integrity import NodesCheck
from radixkv.tree.namespace import DEFAULT, Namespace, check_namespace
from radixkv.tree.nodes import Nodes
from radixkv.tree.policies import get_policy
from radixkv.tree.python_runs import PythonRunParts
from radixkv.tree.radix_tree import (
    NO_CHANGES,
    AdmitResult,
    Changes,
    Handle,
    InsertFromResult,
    InsertResult,
    KeptPath,
    Ledger,
    MatchResult,
    NodeInfo,
    PublishResult,
    RadixTree,
    RunParts,
    TreeCheck,
)
from radixkv.tree.reader import PYTHON_READER, TokenIds
from radixkv.tree.share_counts import ShareCounts
from radixkv.tree.shares import NO_SHARES, Shares, ShareSizes
from radixkv.tree.tickets import Tickets


class PythonRadixTree(RadixTree):
    """See `RadixTree`. nodes: what the tree holds; only for looking."""

    core = "python"

    def __init__(self, page_size: int = 1, policy: str = "lru", shares: Shares = NO_SHARES) -> None:
        check_page_size(page_size)
        self.page_size = page_size
        self.policy = policy
        self.nodes = Nodes(page_size, get_policy(policy), ShareCounts(shares, page_size))
        self.shares = dict(shares)

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

    def match_handle(
        self, token_ids: TokenIds, namespace: Namespace = DEFAULT, *, content: Content = ()
    ) -> Handle:
        return self.match_prefix(token_ids, namespace, content=content).handle

    def path_slots(self, handle: Handle) -> Int64Array:
        return self.nodes.path_slots(handle).astype(np.int64)

    def path_slices(self, handle: Handle, most: int) -> list[slice] | None:
        most = _count(most, "most")
        slices = _slices(self.nodes.path_slots(handle))
        return slices if len(slices) <= most else None

    def probe(
        self,
        token_ids: TokenIds,
        namespace: Namespace = DEFAULT,
        *,
        content: Content = (),
        checked: bool = False,
    ) -> int:
        codes = self._encode(token_ids, content, checked)
        check_namespace(namespace)
        return self.nodes.find(codes, namespace).length

    def _encode(self, token_ids: TokenIds, content: Content, checked: bool) -> Int32Array:
        tokens, spans = PYTHON_READER.key(token_ids, content, checked)
        return self.nodes.content.encode(tokens, spans, intern=False, checked=True)

    def match_batch(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT, *, checked: bool = False
    ) -> list[MatchResult]:
        keys = PYTHON_READER.keys(prompts, checked)
        check_namespace(namespace)
        return [self.nodes.match(codes, namespace) for codes in keys]

    def match_lengths(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT, *, checked: bool = False
    ) -> list[int]:
        return [match.length for match in self.match_batch(prompts, namespace, checked=checked)]

    def probe_batch(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT, *, checked: bool = False
    ) -> list[int]:
        keys = PYTHON_READER.keys(prompts, checked)
        check_namespace(namespace)
        return [self.nodes.find(codes, namespace).length for codes in keys]

    # ---- locks ----

    def inc_lock_ref(self, handle: Handle) -> None:
        self.nodes.lock(handle)

    def dec_lock_ref(self, handle: Handle) -> None:
        self.nodes.unlock(handle)

    def path_of(self, handle: Handle) -> KeptPath:
        return self.nodes.path_of(handle)

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
        priority, chunked = as_int(priority, "priority"), as_flag(chunked, "chunked")
        known = self.nodes.known(after, namespace)
        checked = as_flag(checked, "checked")
        tokens = PYTHON_READER.token_ids_once(token_ids, checked)
        own_slots = PYTHON_READER.slots_once(slots, checked)
        _check_lengths(known.length, len(tokens), len(own_slots))
        codes = self.nodes.content.encode(tokens, content, intern=True, checked=checked)
        return self.nodes.insert(
            codes, own_slots, namespace, priority=priority, chunked=chunked, known=known
        )

    def insert_from(
        self,
        token_ids: TokenIds,
        tickets: Tickets,
        namespace: Namespace = DEFAULT,
        *,
        priority: int = 0,
        chunked: bool = False,
        after: Handle | None = None,
    ) -> InsertFromResult:
        check_namespace(namespace)
        priority, chunked = as_int(priority, "priority"), as_flag(chunked, "chunked")
        _check_tickets(tickets)
        known = self.nodes.known(after, namespace)
        tokens = PYTHON_READER.token_ids(token_ids)
        _check_known(known.length, len(tokens))
        there = self.nodes.find(tokens, namespace, known.node).length
        taken = _take(tickets, round_down(len(tokens), self.page_size) - there)
        slots = np.empty(len(tokens) - known.length, np.int32)
        slots[there - known.length :][: len(taken)] = taken
        stored = self.nodes.insert(
            tokens, slots, namespace, priority=priority, chunked=chunked, known=known
        )
        return InsertFromResult(*stored, _slice_or_array(taken))

    def evict(
        self, num_tokens: int, namespace: Namespace | None = None, *, wanted: int = 0
    ) -> Int32Array:
        nodes, count = self.nodes, round_up(_count(num_tokens, "num_tokens"), self.page_size)
        wanted = round_up(_count(wanted, "wanted"), self.page_size)
        whom = self._share_of(namespace)
        count = min(count, nodes.shares.room_for(whom))
        beyond = 0 if whom is None else nodes.shares.all[whom].beyond_cap(wanted)
        return nodes.evict(count, whom, min(count, beyond))

    def evict_beyond_caps(self) -> Int32Array:
        freed = [
            self.nodes.evict(beyond, number, beyond)
            for number, share in enumerate(self.nodes.shares.all)
            if (beyond := share.beyond_cap())
        ]
        return np.concatenate([EMPTY, *freed])

    def advance_clock(self, milliseconds: int) -> None:
        self.nodes.policy.advance_clock(_count(milliseconds, "milliseconds"))

    def room_for(self, namespace: Namespace | None = None) -> int:
        return self.nodes.shares.room_for(self._share_of(namespace))

    def share_sizes(self) -> dict[str | None, ShareSizes]:
        return self.nodes.shares.sizes()

    def _share_of(self, namespace: Namespace | None) -> int | None:
        if namespace is None:
            return None
        check_namespace(namespace)
        return self.nodes.shares.number(namespace)

    def evict_below(
        self, token_ids: TokenIds, namespace: Namespace = DEFAULT, *, content: Content = ()
    ) -> Int32Array:
        codes = self._encode(token_ids, content, checked=False)
        check_namespace(namespace)
        check_whole_pages(len(codes), self.page_size)
        return self.nodes.evict_below(codes, namespace)

    def evict_to(self, tickets: Tickets, num_tokens: int, most: int) -> list[slice] | Int64Array:
        _check_tickets(tickets)
        most = _count(most, "most")
        evicted = self.evict(num_tokens)
        tickets.free(evicted)
        slices = _slices(evicted)
        return slices if len(slices) <= most else evicted.astype(np.int64)

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
        length: int | None = None,
    ) -> AdmitResult:
        nodes, token_ids = self.nodes, token_ids[:length]
        limit = len(token_ids) if max_cached is None else _count(max_cached, "max_cached")
        needed = len(token_ids) + _count(extra, "extra")
        needed += -needed % self.page_size
        _check_row(row, needed)
        codes = token_ids[:limit]
        if content:
            spans = cut_content(content, limit)
            codes = nodes.content.encode(codes, spans, intern=False, checked=True)
        length, matched, handle = nodes.match(codes, namespace)
        # Lock before judging capacity: what is about to be used is not evictable.
        nodes.lock(handle)
        slots, evicted = None, 0
        try:
            slots = ledger.take(needed - length)  # mostly there is room
            if slots is None:
                slots, evicted = self.take(needed - length, ledger, namespace)
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
        length: int | None = None,
        unlock: bool = False,
    ) -> PublishResult:
        nodes, token_ids = self.nodes, token_ids[:length]
        size = len(token_ids)
        known = nodes.known(held, namespace)
        _check_known(known.length, size)
        _check_row(row, size)
        own = row[known.length : size]
        ledger.check_range(own)
        codes = token_ids
        if content:
            codes = nodes.content.encode(token_ids, content, intern=True, checked=True)
        there, found, handle = nodes.insert(
            codes, own, namespace, priority=priority, chunked=chunked, known=known
        )
        if not unlock:
            nodes.lock(handle)
        if held is not None:
            nodes.unlock(held)
        duplicates = row[known.length : there].copy()
        row[known.length : there] = found
        ledger.give_back(duplicates, fence)
        return PublishResult(there, None if unlock else handle)

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

    def runs(self) -> RunParts:
        return PythonRunParts(self.nodes)

    def begin_check(self, num_slots: int | None = None) -> TreeCheck:
        return NodesCheck(self.nodes, num_slots)

    def locks(self) -> dict[Handle, int]:
        return dict(self.nodes.locked)

    def namespace_of(self, handle: Handle) -> Namespace | None:
        return self.nodes.namespace_of(handle)

    def __getstate__(self) -> dict[str, Any]:
        return {"made": (self.page_size, self.policy, self.shares), "nodes": self.nodes.state()}

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


def _check_tickets(tickets: Tickets) -> None:
    if not isinstance(tickets, Tickets):
        raise InvalidArgumentError(
            f"tickets must be Tickets of the tree's core; got {type(tickets).__name__}"
        )


def _take(tickets: Tickets, count: int) -> Int32Array:
    taken, free = tickets.take(count), tickets.free_size
    if taken is None:
        raise OutOfSlotsError(
            f"tickets must have {count} free; got {free}", needed=count, free=free
        )
    return taken


def _slice_or_array(tickets: Int32Array) -> slice | Int64Array:
    slices = _slices(tickets) or [slice(0, 0)]
    return slices[0] if len(slices) == 1 else tickets.astype(np.int64)


def _slices(slots: Int32Array) -> list[slice]:
    """Slots as slices of those that follow one another."""
    if not len(slots):
        return []
    ends = np.flatnonzero(np.diff(slots) != 1) + 1
    begins, lasts = slots[np.r_[0, ends]], slots[np.r_[ends - 1, len(slots) - 1]]
    return [slice(one, last + 1) for one, last in zip(begins.tolist(), lasts.tolist(), strict=True)]


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
