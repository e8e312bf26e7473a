"""Threads that keep an index fed: one a worker, from its watch, for as long as it is known."""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from radixkv.cache.events import Update
from radixkv.errors import RadixKVError, ServiceUnavailableError, UnsupportedError
from radixkv.router.index import PrefixIndex
from radixkv.router.mirror import MirrorPosition

logger = logging.getLogger(__name__)

# So many in a row, and a worker counts as unreachable.
_FAILURES, _MISSES = 2, 2
# Between attempts to reach a worker: twice as long each time.
_FIRST_WAIT_S, _LONGEST_WAIT_S, _MOST_DOUBLINGS = 0.05, 2.0, 10


class Stream(Protocol):
    """A watch under way: iterated by one thread, closed by another. `Client.watch` returns one."""

    def __iter__(self) -> Iterator[Update]:
        """Updates as they come; ends or raises RadixKVError when the watch does."""
        ...

    def close(self) -> None:
        """End the iteration soon. Idempotent, safe at any time."""
        ...


# Takes a worker's update; see `Router.apply`.
Apply: TypeAlias = Callable[[str, Update], None]

# Begins a watch after a position, or with a snapshot (None).
Source: TypeAlias = Callable[[MirrorPosition | None], Stream]


class WorkerInfo(Protocol):
    """What a worker's server reports of itself."""

    @property
    def page_size(self) -> int: ...
    @property
    def num_slots(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def revision(self) -> int: ...


class WorkerClient(Protocol):
    """A client of a worker's server, such as `radixkv.service.Client`."""

    def server_info(self, *, timeout_s: float | None = None) -> WorkerInfo: ...
    def watch(self, *, after: MirrorPosition | None) -> Stream: ...


def watch_of(client: WorkerClient, index: PrefixIndex, worker: str) -> Source:
    """The client's watch; the index also gets the page size and the slots of the server."""

    def begin(position: MirrorPosition | None) -> Stream:
        try:
            info = client.server_info()
        except UnsupportedError as error:
            raise UnsupportedError(
                f"worker {worker!r} must be the server of a cache; got one that has no cache to "
                "watch, such as another router",
                worker=worker,
            ) from error
        index.set_pool(worker, info.page_size, info.num_slots)
        return client.watch(after=position)

    return begin


class Feeder:
    """Applies one worker's watch to the index, and begins it again from where the index is.

    num_failures: attempts in a row that brought no update. num_misses: probes in a row that found
    no server at the worker's address. last_error: of either, until the next success.
    """

    def __init__(self, index: PrefixIndex, worker: str, source: Source, apply: Apply) -> None:
        self._index, self._worker, self._source, self._apply = index, worker, source, apply
        self._stopping = threading.Event()
        self._stream: Stream | None = None
        self._lock = threading.Lock()
        self._was_reached = False
        self.num_failures = self.num_misses = 0
        self.last_error: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"radixkv-{worker}", daemon=True)

    def start(self) -> None:
        """Begin to follow the worker, on a thread of its own. Call it once."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch and wait for the thread. Idempotent."""
        self._stopping.set()
        with self._lock:
            if self._stream is not None:
                self._stream.close()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def is_failing(self) -> bool:
        """Whether the worker is known to be unreachable."""
        return self.num_failures >= _FAILURES or self.num_misses >= _MISSES

    def missed(self, error: RadixKVError) -> None:
        """A probe found no server; the watch goes on trying, and is silent."""
        self.num_misses += 1
        if self._was_reached:
            self.last_error = str(error)
            if self.num_misses == _MISSES:
                logger.warning("worker %s is gone; trying again: %s", self._worker, error)

    def answered(self) -> None:
        """A probe was answered."""
        if not self.num_misses:
            return
        if self._was_reached:
            self.last_error = None
            if self.num_misses >= _MISSES:
                logger.warning("worker %s is back", self._worker)
        self.num_misses = 0

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._watch()
            except Exception as error:  # whatever it is, the worker must not be lost for good
                self._failed(error)
            else:
                self.num_failures += 1
            doublings = min(self.num_failures - 1, _MOST_DOUBLINGS)  # a float ends at 2.0 ** 1024
            wait_s = min(_FIRST_WAIT_S * 2**doublings, _LONGEST_WAIT_S)
            self._stopping.wait(wait_s)

    def _failed(self, error: Exception) -> None:
        self.num_failures += 1
        if str(error) != self.last_error:
            self.last_error = str(error)
            is_bug = not isinstance(error, RadixKVError)
            what = "its watch ended" if self._was_reached else "never reached so far"
            logger.warning(
                "worker %s: %s; trying again: %s", self._worker, what, error, exc_info=is_bug
            )
        if not isinstance(error, ServiceUnavailableError):
            # Whatever was wrong with where it resumed is not wrong with a snapshot.
            self._index.lose(self._worker)

    def _watch(self) -> None:
        with self._lock:
            if self._stopping.is_set():
                return
            stream = self._stream = self._source(self._index.position(self._worker))
        try:
            for update in stream:
                if self._stopping.is_set():
                    return
                self._apply(self._worker, update)
                self._was_reached = True
                self.num_failures, self.last_error = 0, None
                if self._index.view(self._worker).state == "behind":
                    return
        finally:
            stream.close()
