"""Invariants I1 to I7 over tree, allocator, rows and events, on sets of slots, never on sums."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from radixkv.arrays import Int32Array
from radixkv.cache.events import EventLog
from radixkv.cache.ledger import SlotLedger
from radixkv.cache.pin import Pin
from radixkv.cache.request import Request
from radixkv.cache.runs import Runs, StoredRun, replay
from radixkv.cache.snapshot import Snapshot
from radixkv.memory import ReqToTokenPool
from radixkv.tree import NodeInfo, RadixTree, Stored, Trimmed

SHOWN = 10
Slots: TypeAlias = Int32Array | NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CacheView:
    """The parts of a cache that the invariants are about, between two calls.

    private: slots of live requests outside the tree, retired ones apart. borrower_of: by slot.
    """

    tree: RadixTree
    ledger: SlotLedger
    req_to_token: ReqToTokenPool
    live: Sequence[Request]
    private: Int32Array
    pins: Collection[Pin]
    borrower_of: Int32Array


def check_readers(cache: CacheView) -> list[str]:
    """I3 locks, I4 liveness, I6 quiet.

    What is read is locked, so that the nodes that are locked are enough, unless something is wrong.
    """
    lines = _check_readers(cache, cache.tree.locked_nodes())
    return _check_readers(cache, list(cache.tree.walk())) if lines else []


def _check_readers(cache: CacheView, nodes: list[NodeInfo]) -> list[str]:
    by_first_slot = {(node.parent_id, int(node.slots[0])): node for node in nodes}
    readers: list[Request | Pin] = [*cache.live, *cache.pins]
    paths = [(reader, _path_of(reader, by_first_slot)) for reader in readers]
    return [
        *_locks([path for _, path in paths], nodes),
        *(line for reader, path in paths for line in _shared(reader, path)),
        *_private(cache),
        *_quiet(cache),
    ]


def check_partition(cache: CacheView) -> list[str]:
    """I1: each slot has one owner; who has it is worked out only where that fails."""
    pool, ledger = cache.ledger.allocator, cache.ledger
    owned, num_wrong = cache.tree.slot_marks(pool.num_slots + pool.page_size)
    others: tuple[Slots, ...] = (
        pool.free_slots(),
        cache.private,
        np.flatnonzero(cache.borrower_of),
        np.flatnonzero(ledger.is_retired),
        *(slots for _, slots in ledger.deferred),
    )
    for slots in others:
        before = int(np.count_nonzero(owned))
        owned[slots[slots < len(owned)]] = True
        num_wrong += len(slots) - (int(np.count_nonzero(owned)) - before)
    is_whole = not num_wrong and bool(owned[pool.page_size :].all())
    return [] if is_whole and not owned[: pool.page_size].any() else list(_name_owners(cache))


def _name_owners(cache: CacheView) -> Iterator[str]:
    owners = {
        "free": cache.ledger.allocator.free_slots().tolist(),
        "tree": cache.tree.all_slots().tolist(),
        "private": cache.private.tolist(),
        "loans": np.flatnonzero(cache.borrower_of).tolist(),
        "retired": np.flatnonzero(cache.ledger.is_retired).tolist(),
        "deferred": [slot for _, slots in cache.ledger.deferred for slot in slots.tolist()],
    }
    owned: Counter[int] = Counter()
    for slots in owners.values():
        owned.update(slots)
    for slot in [slot for slot, count in owned.items() if count > 1][:SHOWN]:
        names = " and ".join(name for name, slots in owners.items() if slot in slots)
        yield f"I1 partition: slot {slot} belongs to {names}"
    pool = cache.ledger.allocator
    everything = set(range(pool.page_size, pool.num_slots + pool.page_size))
    for word, slots in (
        ("lost: neither free nor held", everything - owned.keys()),
        ("not in the pool", owned.keys() - everything),
    ):
        if slots:
            yield f"I1 partition: slots {sorted(slots)[:SHOWN]} are {word}"


def check_holders(cache: CacheView) -> Iterator[str]:
    """I1: a slot outside the tree has a sharer for each of its holders but one."""
    held = np.concatenate(
        [
            np.flatnonzero(cache.borrower_of),
            *(request.table[request.shared : request.capacity] for request in cache.live),
            *(pin.slots for pin in cache.pins if pin.handle is None),
        ]
    )
    slots, counts = np.unique(held, return_counts=True)
    sharers = cache.ledger.sharers
    several = np.flatnonzero(sharers)
    wrong = [*slots[sharers[slots] != counts - 1], *several[~np.isin(several, slots)]]
    if wrong:
        shown = sorted(map(int, wrong))[:SHOWN]
        yield f"I1 partition: rows and holder counts differ at slots {shown}"
    rows = [request.row for request in cache.live]
    if (
        len(set(rows)) != len(rows)
        or len(rows) + cache.req_to_token.free_size != cache.req_to_token.max_requests
    ):
        free = cache.req_to_token.free_size
        yield f"I1 partition: live rows {sorted(rows)} and {free} free rows do not add up"


def _path_of(
    request: Request | Pin, by_first_slot: dict[tuple[int, int], NodeInfo]
) -> list[NodeInfo]:
    """The nodes that hold the shared part of a row, as far as tree and row agree."""
    path: list[NodeInfo] = []
    at, parent = 0, 0
    while at < request.shared:
        node = by_first_slot.get((parent, int(request.table[at])))
        if node is None or not _is_under(request, node, at):
            break
        path.append(node)
        at, parent = at + len(node.slots), node.id
    return path


def _locks(paths: list[list[NodeInfo]], nodes: list[NodeInfo]) -> Iterator[str]:
    held = Counter(node.id for path in paths for node in path)
    for node in nodes:
        if node.lock_ref != held[node.id]:
            yield (
                f"I3 locks: node {node.id} has lock_ref {node.lock_ref}, "
                f"{held[node.id]} live requests and pins hold it"
            )


def _shared(request: Request | Pin, path: list[NodeInfo]) -> Iterator[str]:
    """The shared part of a row is one path of the tree: the same slots, under the same tokens."""
    at = sum(len(node.slots) for node in path)
    if at != request.shared:
        slot = request.table[at]
        yield f"I4 liveness: {request!r} names slot {slot} at {at}, the tree has another there"


def _private(cache: CacheView) -> Iterator[str]:
    """The rest of a row is not free; requests that name one slot have the same tokens so far."""
    free, several = cache.ledger.allocator.free_slots(), np.flatnonzero(cache.ledger.sharers)
    known: dict[int, int] = {}
    for request in cache.live:
        own = request.table[request.shared : request.length]
        for slot in own[np.isin(own, free)][:SHOWN].tolist():
            yield f"I4 liveness: {request!r} names slot {slot}, which is free"
        both = np.flatnonzero(np.isin(own, several))
        prefixes = _prefixes(request) if len(both) else []
        for at in (both + request.shared).tolist():
            slot = int(request.table[at])
            if known.setdefault(slot, prefixes[at]) != prefixes[at]:
                yield f"I4 liveness: {request!r} names slot {slot} at {at}, so do other tokens"


def _prefixes(request: Request) -> list[int]:
    """A hash of the namespace and all tokens up to each, (length,)."""
    tokens = request.token_ids.tolist()
    hashes = accumulate(tokens, lambda *both: hash(both), initial=hash(request.namespace))
    return list(hashes)[1:]


def _is_under(request: Request | Pin, node: NodeInfo, at: int) -> bool:
    end = at + len(node.slots)
    return (
        node.namespace == request.namespace
        and end <= request.shared
        and np.array_equal(node.slots, request.table[at:end])
        and bool(np.all((node.codes == request.token_ids[at:end]) | (node.codes < 0)))
    )


def check_replay(snapshot: Snapshot, log: EventLog) -> Iterator[str]:
    """I5: what the log says up to the snapshot is what the snapshot has. Needs no lock."""
    resident = snapshot.runs
    kept = log.kept_until(snapshot.epoch, snapshot.revision)
    if kept.is_complete:
        replayed = replay(kept.events)
        missing, extra = resident.keys() - replayed.keys(), replayed.keys() - resident.keys()
        if missing or extra:
            yield (
                f"I5 replay: runs {sorted(missing)[:SHOWN]} are missing, "
                f"{sorted(extra)[:SHOWN]} are too many"
            )
    else:  # the log knows nothing of older runs: only what it names can be compared
        stored = {event.change.run for event in kept.events if isinstance(event.change, Stored)}
        named = [
            e for e in kept.events if not isinstance(e.change, Trimmed) or e.change.run in stored
        ]
        replayed = replay(named)
        gone = replayed.keys() - resident.keys()
        if gone:
            yield f"I5 replay: runs {sorted(gone)[:SHOWN]} are in the log but not resident"
    yield from _compare(replayed, resident)


def _compare(replayed: Runs, resident: Runs) -> Iterator[str]:
    for number in replayed.keys() & resident.keys():
        if not _same(replayed[number], resident[number]):
            log, tree = replayed[number], resident[number]
            yield f"I5 replay: run {number} is {log} in the log and {tree} in the tree"


def _same(a: StoredRun, b: StoredRun) -> bool:
    return (
        (a.parent_run, a.parent_offset, a.namespace) == (b.parent_run, b.parent_offset, b.namespace)
        and np.array_equal(a.codes, b.codes)
    )  # fmt: skip


def _quiet(cache: CacheView) -> Iterator[str]:
    if cache.live or cache.pins or cache.borrower_of.any():
        return
    ledger, tree = cache.ledger, cache.tree
    kept = cache.ledger.allocator.free_size + ledger.waiting_size + tree.total_size
    private = cache.ledger.allocator.num_slots - kept
    if cache.tree.protected_size or private:
        yield (
            f"I6 quiet: no live request, yet {cache.tree.protected_size} tokens are protected "
            f"and {private} slots private"
        )
