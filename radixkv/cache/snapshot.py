"""All that is resident at one revision, taken in slices between which others have their turns."""

from collections.abc import Iterator
from dataclasses import dataclass
from threading import RLock

from radixkv.cache.events import EventLog
from radixkv.cache.runs import Runs, StoredRun, replay
from radixkv.errors import HistoryLostError, StaleHandleError
from radixkv.tree import RadixTree, Stored

# A slice keeps the lock for some tenths of a millisecond.
SLICE_TOKENS = 32_768
_ALL_BYTES = 2**62
# The log may lose what a slow snapshot still needs: then it is taken under the lock as a whole.
_TRIES = 3


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Snapshot:
    """What was resident at a place in the log: runs by number, parents first."""

    epoch: int
    revision: int
    runs: Runs


def take_snapshot(lock: RLock, tree: RadixTree, log: EventLog) -> Iterator[Snapshot | None]:
    """None after each slice, at last the snapshot. The lock is free between the slices.

    Runs are copied as the tree has them when their slice comes; then the log is replayed from where
    the first slice began. See `RunParts` for why that is exact.
    """
    for _ in range(_TRIES):
        try:
            yield from _slices(lock, tree, log)
            return
        except (HistoryLostError, StaleHandleError):
            continue
    with lock:
        epoch, revision = log.position()
        parts = tree.runs()
        parts.sort()
        runs = _add(parts.take(tree.total_size + 1), {})
    yield Snapshot(epoch, revision, runs)


def _slices(lock: RLock, tree: RadixTree, log: EventLog) -> Iterator[Snapshot | None]:
    runs: Runs = {}
    with lock:
        epoch, revision = log.position()
        parts = tree.runs()
    parts.sort()
    yield None
    while not parts.is_done:
        with lock:
            taken = parts.take(SLICE_TOKENS)
        _add(taken, runs)
        yield None
    update = log.read(epoch, revision, _ALL_BYTES)
    if update.epoch != epoch:
        raise StaleHandleError("the cache was reset; begin again")
    yield Snapshot(epoch, update.revision, replay(update.events, runs))


def _add(taken: list[Stored], runs: Runs) -> Runs:
    for each in taken:
        runs[each.run] = StoredRun(each.parent_run, each.parent_offset, each.codes, each.namespace)
    return runs
