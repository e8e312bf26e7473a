"""Invariants I1 to I7 over tree, allocator, rows and events, on sets of slots, never on sums."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.cache.events import EventLog
from radixkv.cache.ledger import SlotLedger
from radixkv.cache.pin import Pin
from radixkv.cache.request import Request
from radixkv.cache.runs import Runs, StoredRun, replay, runs_of
from radixkv.memory import ReqToTokenPool
from radixkv.tree import NodeInfo, RadixTree, Stored, Trimmed

SHOWN = 10


@dataclass(frozen=True, slots=True)
class CacheView:
    """The parts of a cache that the invariants are about, between two calls.

    private: slots of live requests outside the tree, retired ones apart. borrower_of: by slot.
    """

    tree: RadixTree
    ledger: SlotLedger
    req_to_token: ReqToTokenPool
    events: EventLog
    live: Sequence[Request]
    private: Int32Array
    pins: Collection[Pin]
    borrower_of: Int32Array


def check_cache(cache: CacheView) -> list[str]:
    """One line for each broken invariant.

    I1 partition, I2 sizes and I7 reach (in the tree), I3 locks (there and here), I4 liveness,
    I5 replay, I6 quiet.
    """
    nodes = list(cache.tree.walk())
    by_first_slot = {(node.parent_id, int(node.slots[0])): node for node in nodes}
    readers: list[Request | Pin] = [*cache.live, *cache.pins]
    paths = [(reader, _path_of(reader, by_first_slot)) for reader in readers]
    return [
        *cache.tree.check_integrity(),
        *_partition(cache, nodes),
        *_holders(cache),
        *_locks([path for _, path in paths], nodes),
        *(line for reader, path in paths for line in _shared(reader, path)),
        *_private(cache),
        *_replay(cache, nodes),
        *_quiet(cache),
    ]


def _partition(cache: CacheView, nodes: list[NodeInfo]) -> Iterator[str]:
    owners = {
        "free": cache.ledger.allocator.free_slots().tolist(),
        "tree": [slot for node in nodes for slot in node.slots.tolist()],
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


def _holders(cache: CacheView) -> Iterator[str]:
    held: Counter[int] = Counter()
    for request in cache.live:
        held.update(request.table[request.shared : request.capacity].tolist())
    for pin in cache.pins:
        held.update(pin.slots[pin.shared :].tolist())
    held.update(np.flatnonzero(cache.borrower_of).tolist())
    sharers = cache.ledger.sharers
    several = held.keys() | np.flatnonzero(sharers).tolist()
    wrong = sorted(slot for slot in several if max(held[slot] - 1, 0) != sharers[slot])
    if wrong:
        yield f"I1 partition: rows and holder counts differ at slots {wrong[:SHOWN]}"
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


def _replay(cache: CacheView, nodes: Iterable[NodeInfo]) -> Iterator[str]:
    resident = runs_of(nodes)
    kept = cache.events.since(cache.events.compact_revision)
    if cache.events.is_complete:
        replayed = replay(kept)
        missing, extra = resident.keys() - replayed.keys(), replayed.keys() - resident.keys()
        if missing or extra:
            yield (
                f"I5 replay: runs {sorted(missing)[:SHOWN]} are missing, "
                f"{sorted(extra)[:SHOWN]} are too many"
            )
    else:  # the log knows nothing of older runs: only what it names can be compared
        stored = {event.change.run for event in kept if isinstance(event.change, Stored)}
        named = [e for e in kept if not isinstance(e.change, Trimmed) or e.change.run in stored]
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
