"""Workers with real caches, followed by an index through updates that a test may lose or repeat."""

from collections.abc import Iterator
from typing import Any

from radixkv import DEFAULT, Namespace, PrefixCache
from radixkv.cache.events import Event, Update
from radixkv.cache.runs import Runs, runs_of
from radixkv.errors import HistoryLostError, RevisionInFutureError
from radixkv.router import PrefixIndex
from radixkv.tree import Stored
from tests.support.holders import plain


class Worker:
    """A worker with a cache of its own, which restarts, and what a server would report of it."""

    def __init__(self, name: str, num_slots: int = 64, **how: Any) -> None:
        self.name, self._how = name, {"core": "python", **how}
        self.num_slots = num_slots
        self.restart()

    def restart(self) -> None:
        """Another process: nothing cached, another epoch, revisions from 0."""
        self.cache = PrefixCache(self.num_slots, **self._how)

    def hold(self, ids: Any, namespace: Namespace = DEFAULT, **how: Any) -> None:
        request = self.cache.admit(ids, namespace, **how)
        if request is not None:
            self.cache.finish(request, up_to=request.length)

    @property
    def runs(self) -> Runs:
        return runs_of(self.cache.tree.walk())

    def snapshot(self, pieces: int = 1) -> Iterator[Update]:
        """The whole cache, in so many updates or fewer."""
        log = self.cache.events
        events = [
            Event(log.revision, Stored(number, run.parent_run, run.parent_offset, run.codes,
                                       run.namespace))
            for number, run in self.runs.items()
        ]  # fmt: skip
        size = max(1, -(-len(events) // pieces))
        parts = [tuple(events[at : at + size]) for at in range(0, len(events), size)] or [()]
        for at, part in enumerate(parts):
            yield Update(log.epoch, log.revision, part, at == 0, at == len(parts) - 1)

    def updates(self, position: tuple[int, int] | None, max_bytes: int = 600) -> Iterator[Update]:
        """What a watch from there would report: what came since, or a snapshot."""
        log = self.cache.events
        if position is None or position[0] != log.epoch:
            yield from self.snapshot(pieces=3)
            return
        epoch, revision = position
        while True:
            try:
                update = log.read(epoch, revision, max_bytes)
            except (HistoryLostError, RevisionInFutureError):
                yield from self.snapshot(pieces=3)
                return
            yield update
            if update.revision == log.revision and update.epoch == log.epoch:
                return
            epoch, revision = update.epoch, update.revision


def catch_up(index: PrefixIndex, worker: Worker) -> None:
    """A watch, from where the index stands, until nothing is left."""
    for update in worker.updates(index.position(worker.name)):
        index.apply(worker.name, update)


def check_mirrors(index: PrefixIndex, *workers: Worker) -> None:
    """The index has of each exactly what it holds."""
    assert index.check_integrity() == []
    for worker in workers:
        view = index.view(worker.name)
        assert view.state == "current"
        assert view.num_tokens == worker.cache.tree.total_size
        assert plain(index.runs(worker.name)) == plain(worker.runs)


def is_current(router, worker):
    log = worker.cache.events
    return router.index.position(worker.name) == (log.epoch, log.revision)
