"""PrefixIndex: which worker holds how much of a prompt, mirrored from the workers' watches."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from radixkv.arguments import as_text, at_least
from radixkv.arrays import Int32Array
from radixkv.cache.events import Update
from radixkv.cache.runs import Runs, StoredRun
from radixkv.errors import InvalidArgumentError
from radixkv.router.factory import new_holdings
from radixkv.router.mirror import Mirror, MirrorPosition, MirrorState
from radixkv.router.pick_input import BoolArray, FloatArray
from radixkv.router.spaces import Spaces
from radixkv.router.worker_rows import WorkerRows
from radixkv.tree import DEFAULT, Namespace, TokenIds
from radixkv.tree.content import NO_CONTENT, Content, check_content
from radixkv.tree.namespace import check_namespace
from radixkv.tree.tokens import as_token_ids


class WorkerView(NamedTuple):
    """A worker as the index sees it; see `Mirror`.

    Attributes
    ----------
    worker
        Its name.
    state
        waiting, current, or behind.
    epoch
        The life of its cache that is followed.
    revision
        Up to which its changes are applied.
    lag
        Revisions that it is known to have made since.
    is_stale
        Whether that is many, or a snapshot is missing.
    silent_s
        Seconds since its last update.
    num_tokens
        Tokens that it holds.
    num_unknown
        Updates that named what it does not hold.
    num_late
        Updates that came after newer ones.
    """

    worker: str
    state: MirrorState
    epoch: int
    revision: int
    lag: int
    is_stale: bool
    silent_s: float
    num_tokens: int
    num_unknown: int
    num_late: int


class PrefixIndex:
    """What every worker holds, token for token, as its watch reports it. Thread-safe.

    Fed with the updates of any number of workers (`apply`), which come, go, restart, fall behind
    and send snapshots. A look-up walks the prompt once for all of them.

    Parameters
    ----------
    core
        See `new_holdings`.
    clock
        Seconds, for `silent_s`.

    Attributes
    ----------
    version
        Grows when workers come or go, and when one becomes stale or no longer is.

    Examples
    --------
    >>> from radixkv import PrefixCache
    >>> index, cache = PrefixIndex(), PrefixCache(16)
    >>> index.add_worker("a")
    >>> cache.finish(cache.admit([1, 2, 3]), up_to=3)
    >>> index.apply("a", cache.events.read(0, 0, 1 << 20))
    3
    >>> index.lookup([1, 2, 9])
    {'a': 2}
    """

    def __init__(
        self, core: str | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._holdings = new_holdings(core)
        self._spaces = Spaces(self._holdings)
        self._clock = clock
        self._mirrors: dict[str, Mirror] = {}
        # Re-entrant: a finalizer or a signal handler may finish a pick at any line here.
        self._lock = threading.RLock()
        self.version = 0
        self._rows = WorkerRows()

    @property
    def core(self) -> str:
        """Which core runs: "native" or "python"."""
        return self._holdings.core

    # ---- workers ----

    def add_worker(self, worker: str, *, page_size: int = 1, num_slots: int | None = None) -> None:
        """A worker of which nothing is known.

        Parameters
        ----------
        worker
            The worker's name.
        page_size
            Tokens a page of its cache.
        num_slots
            Slots of its cache. The index takes at most so many tokens of it, and as many of a
            snapshot under way, whatever it reports; None: no limit.

        Raises
        ------
        InvalidArgumentError
            For a worker that was added before.
        """
        _check_pool(page_size, num_slots)
        as_text(worker, "worker")
        with self._lock:
            if worker in self._mirrors:
                raise InvalidArgumentError(
                    f"worker must be a new name; got {worker!r}, which was added before",
                    worker=worker,
                )
            mirror = Mirror(self._holdings, self._spaces, self._clock, page_size, num_slots)
            self._mirrors[worker] = mirror
            self._rows.add(worker, mirror)
            self.version += 1

    def set_pool(self, worker: str, page_size: int, num_slots: int | None) -> None:
        """`add_worker`'s `page_size` and `num_slots`, where they become known later.

        Parameters
        ----------
        worker
            The worker's name.
        page_size
            Tokens a page, 1 or more.
        num_slots
            Slots of its cache; None: not known.
        """
        _check_pool(page_size, num_slots)
        with self._lock:
            mirror = self._mirror(worker)
            mirror.set_pool(page_size, num_slots)
            self._rows.show(worker, mirror)
            self.version += 1

    def remove_worker(self, worker: str) -> None:
        """Forget a worker and all it holds.

        Parameters
        ----------
        worker
            The worker's name.

        Raises
        ------
        InvalidArgumentError
            For an unknown one.
        """
        with self._lock:
            self._mirror(worker).forget()
            del self._mirrors[worker]
            self._rows.remove(worker)
            self.version += 1

    @property
    def workers(self) -> tuple[str, ...]:
        """Their names, in the order in which they came."""
        return self._rows.names

    def _mirror(self, worker: str) -> Mirror:
        if as_text(worker, "worker") not in self._mirrors:
            known = ", ".join(self._mirrors) or "those that were added"
            raise InvalidArgumentError(
                f"worker must be one of {known}; got {worker!r}",
                worker=worker,
            )
        return self._mirrors[worker]

    # ---- what workers report ----

    def apply(self, worker: str, update: Update) -> int:
        """Follow a worker's watch by one update. Cost: O(what changed).

        What cannot be true is counted and changes nothing of other workers; the worker is then
        "behind" until a snapshot has come (see `position`).

        Parameters
        ----------
        worker
            The worker's name.
        update
            What a watch brought.

        Returns
        -------
        int
            Tokens that the worker computed: those that became cached and are not part of a
            snapshot.

        Raises
        ------
        InvalidArgumentError
            For an unknown worker.
        """
        with self._lock:
            mirror = self._mirror(worker)
            if not isinstance(update, Update):
                raise InvalidArgumentError(f"update must be an Update; got {update!r}")
            before, computed = (mirror.holder, mirror.state), mirror.num_computed
            mirror.apply(update)
            self._rows.show(worker, mirror)
            self.version += before != (mirror.holder, mirror.state)
            return mirror.num_computed - computed

    def position(self, worker: str) -> MirrorPosition | None:
        """The epoch and revision after which its watch may resume; None: it takes a snapshot.

        Parameters
        ----------
        worker
            The worker's name.

        Returns
        -------
        MirrorPosition | None
            Its epoch and revision; None: it takes a snapshot.
        """
        with self._lock:
            return self._mirror(worker).position

    def note_revision(self, worker: str, epoch: int, revision: int) -> None:
        """The worker answered a call with this epoch and revision: how far its watch lags.

        Parameters
        ----------
        worker
            The worker's name.
        epoch
            Of the answer.
        revision
            Of the answer.
        """
        at_least(0, epoch=epoch)
        at_least(0, revision=revision)
        with self._lock:
            mirror = self._mirror(worker)
            before = mirror.is_stale
            mirror.note(epoch, revision)
            self._rows.show(worker, mirror)
            self.version += before != mirror.is_stale

    def lose(self, worker: str) -> None:
        """The worker's history has a gap: it is "behind" until a snapshot has come.

        Parameters
        ----------
        worker
            The worker's name.
        """
        with self._lock:
            mirror = self._mirror(worker)
            mirror.lose()
            self._rows.show(worker, mirror)
            self.version += 1

    # ---- looking ----

    def lengths(
        self, token_ids: TokenIds, namespace: Namespace = DEFAULT, *, content: Content = ()
    ) -> tuple[tuple[str, ...], Int32Array]:
        """The n workers and, (n,) int32, how many leading tokens each holds, in whole pages.

        Content (images, audio) is not compared between workers: a match ends where the first span
        of `content` begins. Cost: O(len(token_ids)) compares, O(nodes on the path), O(workers that
        hold any of it).

        Parameters
        ----------
        token_ids
            (n,) int32, n >= 0, each from 0 to 2**31 - 1; or what `as_token_ids` reads.
        namespace
            What must be equal besides the tokens.
        content
            What placeholder tokens stand for: `ContentSpan`s, or (start, length, id: bytes).

        Returns
        -------
        tuple[tuple[str, ...], Int32Array]
            Names, and (n,) int32 tokens in whole pages.

        Raises
        ------
        InvalidTokensError
            For token ids that are not (n,) integers from 0 to 2**31 - 1.
        InvalidNamespaceError
            For what is not a `Namespace`.
        InvalidContentError
            For spans that overlap, or lie outside the prompt.
        """
        if content is not NO_CONTENT:
            token_ids = as_token_ids(token_ids)
            spans = check_content(content, len(token_ids))
            token_ids = token_ids[: spans[0].start] if spans else token_ids
        if namespace is not DEFAULT:
            check_namespace(namespace)
        with self._lock:
            root = self._spaces.find(namespace)
            if root is None:
                as_token_ids(token_ids)
                return self.workers, np.zeros(len(self.workers), np.int32)
            lengths = self._holdings.lengths(token_ids, root, self._rows.holders)
            if self._rows.page_sizes is not None:
                lengths -= lengths % self._rows.page_sizes
            return self.workers, lengths

    def lookup(
        self, token_ids: TokenIds, namespace: Namespace = DEFAULT, *, content: Content = ()
    ) -> dict[str, int]:
        """Tokens held by each worker that holds any of the prompt, longest first; see `lengths`.

        Parameters
        ----------
        token_ids
            (n,) int32, n >= 0, each from 0 to 2**31 - 1; or what `as_token_ids` reads.
        namespace
            What must be equal besides the tokens.
        content
            What placeholder tokens stand for: `ContentSpan`s, or (start, length, id: bytes).

        Returns
        -------
        dict[str, int]
            Tokens by worker.
        """
        workers, lengths = self.lengths(token_ids, namespace, content=content)
        order = np.argsort(-lengths, kind="stable").tolist()
        return {workers[at]: int(lengths[at]) for at in order if lengths[at]}

    def length(self, worker: str, token_ids: TokenIds, namespace: Namespace = DEFAULT) -> int:
        """How many leading tokens one worker holds, not rounded to pages; see `lengths`.

        Parameters
        ----------
        worker
            The worker's name.
        token_ids
            (n,) int32, n >= 0, each from 0 to 2**31 - 1; or what `as_token_ids` reads.
        namespace
            What must be equal besides the tokens.

        Returns
        -------
        int
            Tokens.
        """
        check_namespace(namespace)
        with self._lock:
            holder, root = self._mirror(worker).holder, self._spaces.find(namespace)
            if root is None:
                as_token_ids(token_ids)
                return 0
            return int(self._holdings.lengths(token_ids, root, np.array([holder]))[0])

    def view(self, worker: str) -> WorkerView:
        """How a worker stands.

        Parameters
        ----------
        worker
            The worker's name.

        Returns
        -------
        WorkerView
            As it is now.

        Raises
        ------
        InvalidArgumentError
            For an unknown one.
        """
        with self._lock:
            return self._view(worker, self._mirror(worker), self._clock())

    def freshness(self) -> tuple[BoolArray, FloatArray]:
        """Of the n workers, in the order of `workers`: which are stale, and silent for how long.

        (n,) bool and (n,) float64 seconds; see `WorkerView`.

        Returns
        -------
        tuple[BoolArray, FloatArray]
            (n,) bool, and (n,) float64 seconds.
        """
        with self._lock:
            return self._rows.is_stale.copy(), self._clock() - self._rows.updated_at

    def _view(self, worker: str, mirror: Mirror, now: float) -> WorkerView:
        return WorkerView(
            worker=worker,
            state=mirror.state,
            epoch=mirror.epoch,
            revision=mirror.revision,
            lag=mirror.lag,
            is_stale=mirror.is_stale,
            silent_s=now - mirror.updated_at,
            num_tokens=self._holdings.num_tokens(mirror.holder),
            num_unknown=mirror.num_unknown,
            num_late=mirror.num_late,
        )

    def runs(self, worker: str) -> Runs:
        """All that a worker holds, as `radixkv.cache.runs.replay` would give it. For checks.

        Parameters
        ----------
        worker
            The worker's name.

        Returns
        -------
        Runs
            By the number of the run.
        """
        with self._lock:
            rows = self._holdings.runs(self._mirror(worker).holder)
            names = [self._spaces.name(row.root) for row in rows]
        return {
            row.run: StoredRun(row.parent_run, row.parent_offset, row.codes, name)
            for row, name in zip(rows, names, strict=True)
        }

    @property
    def num_nodes(self) -> int:
        """Nodes of the tree over the union of what the workers hold."""
        return self._holdings.num_nodes

    @property
    def total_size(self) -> int:
        """Tokens that any worker holds, each counted once."""
        return self._holdings.total_size

    @property
    def num_bytes(self) -> int:
        """Bytes of memory that the tree takes, tokens included. Cost: O(nodes)."""
        with self._lock:
            return self._holdings.num_bytes

    def check_integrity(self) -> list[str]:
        """One line for each broken invariant; walks everything. Empty when all is well.

        Returns
        -------
        list[str]
            A line for each; empty when all is well.
        """
        with self._lock:
            return self._holdings.check_integrity()


def _check_pool(page_size: int, num_slots: int | None) -> None:
    at_least(1, page_size=page_size)
    if num_slots is not None:
        at_least(1, num_slots=num_slots)
