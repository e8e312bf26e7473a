"""Invariants I1 to I7 over tree, allocator, rows and events, on sets of slots, never on sums.

A check goes in slices, between which the cache is free to be called. What a slice compares it sees
at one moment:

    tree        some nodes: see `TreeCheck`
    slots       a range of slots: each has one owner, and its holders are counted
    free list   as a whole
    locks       all handles: each reader has locked its own
    requests    some of them: the shared part of a row is a path of the tree

So what is sound is never reported, however the cache is used meanwhile. What is broken from the
first slice to the last is reported.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from radixkv.arrays import EMPTY, Int32Array, common_length
from radixkv.cache.events import Event, EventLog
from radixkv.cache.ledger import SlotLedger
from radixkv.cache.loans import Loans
from radixkv.cache.pin import Pin
from radixkv.cache.request import Request
from radixkv.cache.runs import Runs, StoredRun, replay
from radixkv.cache.snapshot import Snapshot
from radixkv.errors import StaleHandleError
from radixkv.memory import ReqToTokenPool
from radixkv.tree import NodeInfo, RadixTree
from radixkv.tree.radix_tree import KeptPath, TreeCheck

SHOWN = 10
# Of a slice each: about a millisecond, in the native core.
_NODES, _SLOTS, _TOKENS, _RUNS = 1_024, 1 << 17, 1 << 18, 512
# After so many resets in the middle, all of it is one slice.
_TRIES = 3

Marks: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CacheView:
    """The parts of a cache that the invariants are about; they change between two slices.

    live: by id.
    """

    tree: RadixTree
    ledger: SlotLedger
    req_to_token: ReqToTokenPool
    live: Mapping[int, Request]
    loans: Loans

    @property
    def end(self) -> int:
        """One more than the largest slot."""
        return self.ledger.allocator.num_slots + self.ledger.allocator.page_size

    @property
    def first(self) -> int:
        """The smallest slot."""
        return self.ledger.allocator.page_size


def check_slices(cache: CacheView) -> Iterator[list[str]]:
    """A line for each broken invariant, I5 apart, of one slice after another.

    Nothing else may call the cache during a slice, anything between two of them. A reset between
    two begins all of it again. Memory: a bit a slot.
    """
    for _ in range(_TRIES):
        try:
            yield from _slices(cache)
            return
        except StaleHandleError:
            continue
    yield [line for lines in _slices(cache) for line in lines]


def _slices(cache: CacheView) -> Iterator[list[str]]:
    check = cache.tree.begin_check(cache.end)
    try:
        while not check.is_done:
            yield check.take(_NODES)
        for first in range(0, cache.end, _SLOTS):
            yield list(_check_slots(cache, check, first, min(first + _SLOTS, cache.end)))
    finally:
        check.close()
    yield cache.ledger.allocator.check_integrity()
    yield [*_outside(cache), *_rows(cache), *_quiet(cache)]
    yield list(_locks(cache))
    yield from _requests(cache)


# ---- I1, I4: a range of slots ----


def _check_slots(cache: CacheView, check: TreeCheck, first: int, end: int) -> Iterator[str]:
    """I1: each slot has one owner, and outside the tree a sharer for each holder but one."""
    here = slice(first, end)
    sharers, is_retired = cache.ledger.sharers[here], cache.ledger.is_retired[here]
    on_loan = cache.loans.borrower_of[here] != 0
    rows = _count([r.table[r.shared : r.capacity] for r in cache.live.values()], first, end)
    deferred = _count([slots for _, slots in cache.ledger.deferred], first, end)
    owners = {
        "free": cache.ledger.allocator.free_marks(first, end),
        "tree": check.marks(first, end),
        "private": (rows > 0) & ~is_retired,
        "loans": on_loan,
        "retired": is_retired,
        "deferred": deferred > 0,
    }
    yield from _owners(owners, deferred, first, max(cache.first - first, 0))
    void = [pin.slots for pin in cache.loans.pins if pin.handle is None]
    holders = rows + on_loan + _count(void, first, end)
    wrong = np.flatnonzero(sharers != np.maximum(holders - 1, 0))
    if len(wrong):
        shown = (wrong[:SHOWN] + first).tolist()
        yield f"I1 partition: rows and holder counts differ at slots {shown}"
    yield from _named_free(cache, owners["free"] & (rows > 0), first)
    if sharers.any():
        yield from _named_twice(cache, first, end)


def _count(parts: list[Int32Array], first: int, end: int) -> Int32Array:
    """(end - first,) int32: how often each slot of the range is among them."""
    slots = np.concatenate([EMPTY, *parts])
    counts = np.zeros(end - first, np.int32)
    np.add.at(counts, slots[(slots >= first) & (slots < end)] - first, 1)
    return counts


def _owners(
    owners: dict[str, Marks], deferred: Int32Array, first: int, num_padding: int
) -> Iterator[str]:
    """deferred: how often each slot is. num_padding: leading slots of the range that no one has."""
    num_owners = np.maximum(deferred - 1, 0)
    for marks in owners.values():
        num_owners += marks
    for at in np.flatnonzero(num_owners > 1)[:SHOWN].tolist():
        names = " and ".join(name for name, marks in owners.items() if marks[at])
        yield f"I1 partition: slot {first + at} belongs to {names}"
    lost = np.flatnonzero(num_owners[num_padding:] == 0)[:SHOWN] + num_padding + first
    if len(lost):
        yield f"I1 partition: slots {lost.tolist()} are lost: neither free nor held"
    padding = np.flatnonzero(num_owners[:num_padding])[:SHOWN] + first
    if len(padding):
        yield f"I1 partition: slots {padding.tolist()} are not in the pool"


def _named_free(cache: CacheView, is_wrong: Marks, first: int) -> Iterator[str]:
    """I4: the part of a row that is its own is not free."""
    wrong = np.flatnonzero(is_wrong) + first
    if not len(wrong):
        return
    for request in cache.live.values():
        own = request.table[request.shared : request.length]
        for slot in own[np.isin(own, wrong)][:SHOWN].tolist():
            yield f"I4 liveness: {request!r} names slot {slot}, which is free"


def _named_twice(cache: CacheView, first: int, end: int) -> Iterator[str]:
    """I4: requests that name one slot have it at the same place, behind the same tokens."""
    requests = list(cache.live.values())
    who_first = np.full(end - first, -1, np.int32)
    at_first = np.zeros(end - first, np.int32)
    for number, request in enumerate(requests):
        own = request.table[request.shared : request.length]
        ats = np.flatnonzero((own >= first) & (own < end))
        ats = ats[cache.ledger.sharers[own[ats]] > 0]
        places, ats = own[ats] - first, ats + request.shared
        is_known = who_first[places] >= 0
        for other in np.unique(who_first[places[is_known]]).tolist():
            theirs = who_first[places] == other
            same = _common_length(request, requests[other])
            wrong = theirs & ((at_first[places] != ats) | (ats >= same))
            for place, at in zip(places[wrong][:SHOWN].tolist(), ats[wrong].tolist(), strict=False):
                slot = place + first
                yield f"I4 liveness: {request!r} names slot {slot} at {at}, so do other tokens"
        who_first[places[~is_known]], at_first[places[~is_known]] = number, ats[~is_known]


def _common_length(one: Request, other: Request) -> int:
    if one.namespace != other.namespace:
        return 0
    return common_length(one.token_ids, other.token_ids)


# ---- I1, I6: rows, and a cache that is not used ----


def _outside(cache: CacheView) -> Iterator[str]:
    parts = [slots for _, slots in cache.ledger.deferred]
    parts += [request.table[request.shared : request.capacity] for request in cache.live.values()]
    slots = np.concatenate([EMPTY, *parts])
    outside = slots[(slots < 0) | (slots >= cache.end)][:SHOWN]
    if len(outside):
        yield f"I1 partition: slots {outside.tolist()} are not in the pool"


def _rows(cache: CacheView) -> Iterator[str]:
    rows, free = [request.row for request in cache.live.values()], cache.req_to_token.free_size
    if len(set(rows)) != len(rows) or len(rows) + free != cache.req_to_token.max_requests:
        yield f"I1 partition: live rows {sorted(rows)} and {free} free rows do not add up"


def _quiet(cache: CacheView) -> Iterator[str]:
    loans = cache.loans
    if cache.live or loans.pins or loans.num_loaned or loans.aside_size:
        return
    ledger, tree = cache.ledger, cache.tree
    kept = ledger.allocator.free_size + ledger.waiting_size + tree.total_size
    private = ledger.allocator.num_slots - kept
    if tree.protected_size or private:
        yield (
            f"I6 quiet: no live request, yet {tree.protected_size} tokens are protected "
            f"and {private} slots private"
        )


# ---- I3: locks ----


def _locks(cache: CacheView) -> Iterator[str]:
    """Each reader has locked its handle once, and no one else has; the tree's check compares the
    handles with the nodes. Which nodes are wrong is worked out only where that fails.
    """
    readers: list[Request | Pin] = [*cache.live.values(), *cache.loans.pins]
    handles = Counter(reader.handle for reader in readers if reader.handle is not None)
    if dict(handles) == cache.tree.locks():
        return
    nodes = list(cache.tree.walk())
    by_first_slot = {(node.parent_id, int(node.slots[0])): node for node in nodes}
    held = Counter(node.id for reader in readers for node in _path_of(reader, by_first_slot))
    wrong = [node for node in nodes if node.lock_ref != held[node.id]]
    for node in wrong:
        yield (
            f"I3 locks: node {node.id} has lock_ref {node.lock_ref}, "
            f"{held[node.id]} live requests and pins hold it"
        )
    if not wrong:
        yield "I3 locks: others than the handles of live requests and pins are locked"


def _path_of(
    request: Request | Pin, by_first_slot: dict[tuple[int, int], NodeInfo]
) -> list[NodeInfo]:
    """The nodes that hold the shared part of a row, as far as tree and row agree."""
    path: list[NodeInfo] = []
    at, parent, table = 0, 0, request.table
    while at < request.shared:
        node = by_first_slot.get((parent, int(table[at])))
        if node is None or not np.array_equal(node.slots, table[at : at + len(node.slots)]):
            break
        path.append(node)
        at, parent = at + len(node.slots), node.id
    return path


# ---- I4: the shared part of rows ----


def _requests(cache: CacheView) -> Iterator[list[str]]:
    """Those that are live when their turn comes, of those that were when it began."""
    lines: list[str] = []
    num_tokens = 0
    for request in list(cache.live.values()):
        if cache.live.get(request.id) is not request:
            continue
        lines += _shared(cache.tree, request)
        num_tokens += request.shared
        if num_tokens >= _TOKENS:
            yield lines
            lines, num_tokens = [], 0
    yield lines


def _shared(tree: RadixTree, request: Request) -> Iterator[str]:
    """The shared part of a row is one path of the tree: the same slots, under the same tokens."""
    path = KeptPath(EMPTY, EMPTY)
    if request.shared and request.handle is not None:
        try:
            if tree.namespace_of(request.handle) == request.namespace:
                path = tree.path_of(request.handle)
        except StaleHandleError:
            pass  # then the tree has nothing there
    table, tokens = request.table[: request.shared], request.token_ids[: request.shared]
    slots, codes = path.slots[: request.shared], path.codes[: request.shared]
    at = common_length(table, slots)
    differ = (tokens[:at] != codes[:at]) & (codes[:at] >= 0)
    if differ.any():
        at = int(differ.argmax())
    if at < request.shared:
        slot = table[at]
        yield f"I4 liveness: {request!r} names slot {slot} at {at}, the tree has another there"


# ---- I5: the log ----


def check_replay(snapshot: Snapshot, log: EventLog) -> Iterator[list[str]]:
    """I5: what the log says up to the snapshot is what the snapshot has. Needs no lock.

    In slices, as others want the interpreter; the runs of both are given up as they are compared,
    since to free them all takes as long.
    """
    kept, resident, replayed = (
        log.kept_until(snapshot.epoch, snapshot.revision),
        snapshot.runs,
        Runs(),
    )
    for first in range(0, len(kept.changes), _RUNS):
        changes = chain.from_iterable(kept.changes[first : first + _RUNS])
        replay((Event(0, change) for change in changes), replayed)
        yield []
    too_many: list[int] = []
    while replayed:
        yield list(_compare_some(replayed, resident, too_many))
    extra = sorted(too_many)[:SHOWN]
    if not kept.is_complete:  # the log knows nothing of older runs
        if extra:
            yield [f"I5 replay: runs {extra} are in the log but not resident"]
    elif extra or resident:
        missing = sorted(resident)[:SHOWN]
        yield [f"I5 replay: runs {missing} are missing, {extra} are too many"]


def _compare_some(replayed: Runs, resident: Runs, too_many: list[int]) -> Iterator[str]:
    """Takes some runs out of both."""
    for _ in range(min(_RUNS, len(replayed))):
        number, log = replayed.popitem()
        tree = resident.pop(number, None)
        if tree is None:
            too_many.append(number)
        elif not _same(log, tree):
            yield f"I5 replay: run {number} is {log} in the log and {tree} in the tree"


def _same(a: StoredRun, b: StoredRun) -> bool:
    return (
        (a.parent_run, a.parent_offset, a.namespace) == (b.parent_run, b.parent_offset, b.namespace)
        and np.array_equal(a.codes, b.codes)
    )  # fmt: skip
