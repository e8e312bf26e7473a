"""The events of a `PrefixCache`, published."""

import threading
from types import TracebackType
from typing import Self

from radixkv.cache import PrefixCache
from radixkv.cache.events import Cleared
from radixkv.cache.runs import StoredRun, runs_of
from radixkv.errors import HistoryLostError
from radixkv.integrations.events.blocks import BlockTranslator
from radixkv.integrations.events.names import BlockNames
from radixkv.integrations.events.publisher import EventPublisher
from radixkv.tree import Stored

_PAGE_BYTES = 1 << 20


class CacheEvents:
    """Publishes what `cache` holds, and from then on what becomes cached and what is evicted.

    On a thread of its own: the cache's callers only wake it. Closes the publisher at its end. A
    `CacheServer` publishes by its cache.

    Parameters
    ----------
    cache
        The cache.
    publisher
        Where they go.
    block_size
        Tokens a block; some whole pages.
    names
        As which engine makes them; see `BlockTranslator`.

    Raises
    ------
    InvalidArgumentError
        For a block that is not whole pages.
    """

    def __init__(
        self,
        cache: PrefixCache,
        publisher: EventPublisher,
        *,
        block_size: int = 16,
        names: BlockNames | None = None,
    ) -> None:
        self._cache, self._log = cache, cache.events
        self._translator = BlockTranslator(block_size, names, page_size=cache.page_size)
        self._publisher = publisher
        self._epoch, self._revision = 0, 0
        self._changed = threading.Event()
        self._is_closed = False
        self._changed.set()
        self._log.listen(self._changed.set)
        self._thread = threading.Thread(target=self._run, name="radixkv-events", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._start_over()
        while self._changed.wait() and not self._is_closed:
            self._changed.clear()
            self._catch_up()

    def _catch_up(self) -> None:
        while (self._epoch, self._revision) != self._log.position():
            try:
                update = self._log.read(self._epoch, self._revision, _PAGE_BYTES)
            except HistoryLostError:
                self._start_over()
                continue
            self._epoch, self._revision = update.epoch, update.revision
            events = self._translator.translate(event.change for event in update.events)
            if events:
                self._publisher.publish(events)

    def _start_over(self) -> None:
        """Everything is cleared, and stored as it is now: parents before what continues them."""
        with self._cache.lock:
            self._epoch, self._revision = self._log.position()
            runs = runs_of(self._cache.tree.walk())
        changes: list[Stored | Cleared] = [Cleared()]
        changes += (_stored(number, run) for number, run in runs.items())
        self._publisher.publish(self._translator.translate(changes))

    def close(self) -> None:
        """What happened until now is published first. Idempotent."""
        self._log.unlisten(self._changed.set)
        if not self._is_closed:
            self._is_closed = True
            self._changed.set()
            self._thread.join()
            self._catch_up()
            self._publisher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _stored(number: int, run: StoredRun) -> Stored:
    return Stored(number, run.parent_run, run.parent_offset, run.codes, run.namespace)
