"""Router: an index of who holds what, a policy over it, and the load of each worker."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Self

from radixkv.cache.events import Update
from radixkv.errors import InvalidTokensError, NoWorkersError
from radixkv.router.feeding import Feeder, Source, WorkerClient, watch_of
from radixkv.router.index import PrefixIndex, WorkerView
from radixkv.router.loads import Loads, check_load
from radixkv.router.parity import BYTES, SAMPLE_EVERY, Parity, beginning_of
from radixkv.router.policies import Policy, new_policy
from radixkv.router.probing import Prober
from radixkv.router.question import Question
from radixkv.router.trust import Trust
from radixkv.tree import DEFAULT, Namespace, TokenIds
from radixkv.tree.content import Content
from radixkv.tree.tokens import Int32Array


class Pick(NamedTuple):
    """Where a prompt goes. Hand it to `Router.finish` when the request has ended.

    matched_length: tokens that the worker holds. best_length: the longest match of any that could
    be picked. reason: for a person. to_compute: tokens that the worker does not hold.
    beginning: of the prompt, where the router looks again.
    """

    worker: str
    matched_length: int
    best_length: int
    reason: str
    id: int
    to_compute: int
    namespace: Namespace
    beginning: Int32Array | None


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker as the router sees it.

    load: of what was picked for it and has not ended. work: tokens that it computed of late, or is
    to compute; see `Router`. trust: what its matches count, 0 to 1.
    is_here: whether it is known to live. last_error: of its watch, or of asking it, until its next
    word.
    """

    view: WorkerView
    address: str
    load: float
    work: float
    trust: float
    is_here: bool
    last_error: str | None


class Router:
    """Says which worker a prompt goes to, in microseconds, without asking any. Thread-safe.

    policy: a name of `POLICIES`, or a `Policy`.
    silent_after_s: what a worker holds counts half as much for each such time that it is silent
    beyond the first. gone_after_s: one silent for longer, or whose watch cannot be had, is picked
    only where all are.
    load_window_s: a pick that nobody has finished by then counts as finished.
    work_half_life_s: tokens that a worker has computed count half as much as work of late after
    each such time.
    probe_every_s: so often each worker that has a client is asked where it is, which shows how far
    its watch lags.
    parity: of finished picks (a sample), how many workers have cached the prompt's beginning. Where
    many have not, what is asked about is not what the engines make of the same text.

    >>> from radixkv import PrefixCache
    >>> router, cache = Router(), PrefixCache(16)
    >>> router.add_worker("a")
    >>> router.add_worker("b")
    >>> cache.finish(cache.admit([1, 2, 3]))
    >>> router.apply("b", cache.events.read(0, 0, 1 << 20))
    >>> pick = router.pick([1, 2, 9])
    >>> pick.worker, pick.matched_length
    ('b', 2)
    >>> router.finish(pick)
    """

    def __init__(
        self,
        policy: str | Policy = "cache-aware",
        *,
        core: str | None = None,
        silent_after_s: float = 20.0,
        gone_after_s: float = 60.0,
        load_window_s: float = 60.0,
        work_half_life_s: float = 180.0,
        probe_every_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.index = PrefixIndex(core, clock=clock)
        self.policy = new_policy(policy) if isinstance(policy, str) else policy
        self._clock = clock
        self._loads: Loads[Pick] = Loads(load_window_s, work_half_life_s, clock())
        self._trust = Trust(self.index, silent_after_s, gone_after_s)
        self._feeders: dict[str, Feeder] = {}
        self._addresses: dict[str, str] = {}
        self._ids = count(1)
        self.lock = threading.RLock()
        self.parity = Parity(self.index)
        self._prober = Prober(self.index, probe_every_s)

    # ---- workers ----

    def add_worker(
        self,
        worker: str,
        source: Source | None = None,
        *,
        page_size: int = 1,
        address: str = "",
    ) -> None:
        """A worker that prompts may go to from now on.

        source: begins its watch (see `feeding.py`); a thread follows it. None: feed it by `apply`.
        Raises InvalidArgumentError for one that is there.
        """
        with self.lock:
            self.index.add_worker(worker, page_size=page_size)
            self._addresses[worker] = address
            self._loads.arrange(self.index.workers)
            if source is not None:
                self._feeders[worker] = Feeder(self.index, worker, source, self.apply)
                self._feeders[worker].start()

    def follow(self, worker: str, client: WorkerClient, *, address: str = "") -> None:
        """`add_worker`, fed by a client's watch. The client stays open until the worker goes."""
        self.add_worker(worker, watch_of(client, self.index, worker), address=address)
        with self.lock:
            self._prober.add(worker, client, self._feeders[worker])

    def remove_worker(self, worker: str) -> None:
        """No prompt goes there any more; its watch ends. InvalidArgumentError if unknown."""
        self._prober.remove(worker)
        with self.lock:
            feeder = self._feeders.pop(worker, None)
        if feeder is not None:
            feeder.stop()
        with self.lock:
            self.index.remove_worker(worker)
            del self._addresses[worker]
            self._loads.arrange(self.index.workers)

    def apply(self, worker: str, update: Update) -> None:
        """Follow a worker's watch by one update; see `PrefixIndex.apply`."""
        computed = self.index.apply(worker, update)
        if computed:
            with self.lock:
                self._loads.advance(self._clock())
                self._loads.computed(worker, computed)

    def workers(self) -> list[WorkerStatus]:
        """All workers, by name."""
        with self.lock:
            self._loads.advance(self._clock())
            return [self._status(worker) for worker in sorted(self.index.workers)]

    def _status(self, worker: str) -> WorkerStatus:
        feeder = self._feeders.get(worker)
        view = self.index.view(worker)
        load, work = self._loads.of(worker)
        return WorkerStatus(
            view=view,
            address=self._addresses[worker],
            load=load,
            work=work,
            trust=self._trust.weight(view),
            is_here=self._trust.is_here(view, feeder),
            last_error=feeder.last_error if feeder else None,
        )

    def close(self) -> None:
        """End all watches. Idempotent."""
        self._prober.stop()
        with self.lock:
            feeders, self._feeders = list(self._feeders.values()), {}
        for feeder in feeders:
            feeder.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- picking ----

    def pick(
        self,
        token_ids: TokenIds,
        namespace: Namespace = DEFAULT,
        *,
        content: Content = (),
        key: str | bytes | None = None,
        loads: Mapping[str, float] | None = None,
        cost: float = 1.0,
    ) -> Pick:
        """The worker that a prompt goes to; it counts as its load until `finish`.

        key: what belongs together (a session, a tenant), for policies that go by it; None: the
        prompt's first 64 tokens.
        loads: present loads of the workers that may be picked, in one unit, instead of those
        counted here. cost: what this prompt adds to the load counted here.
        Raises NoWorkersError, InvalidTokensError, InvalidArgumentError for an unknown worker.
        """
        if cost != 1.0:
            check_load(cost, "cost")
        with self.lock:
            now = self._clock()
            if now >= self._loads.due_at:
                self._loads.advance(now)
            self._trust.refresh(now, self._feeders)
            names, lengths = self.index.lengths(token_ids, namespace, content=content)
            own, weights = self._loads, self._trust.weights
            weighed = lengths if weights is None else lengths * weights
            size, key_of = _size(token_ids), partial(_key, key, token_ids)
            asked = Question(names, weighed, own.loads, own.work, own.turns, size, key_of)
            if loads is not None or self._trust.allowed is not None:
                asked, lengths = self._narrowed(asked, lengths, loads)
            if not asked.workers:
                raise NoWorkersError("there is no worker to pick", workers=len(names))
            at, reason = self.policy.choose(asked)
            matched, longest = lengths.item(at), lengths.item(lengths.argmax())
            number = next(self._ids)
            is_sample = number % SAMPLE_EVERY == 1 and not content
            beginning = beginning_of(token_ids) if is_sample else None
            pick = Pick(asked.workers[at], matched, longest, reason, number, size - matched,
                        namespace, beginning)  # fmt: skip
            own.add(pick, cost, now)
            return pick

    def _narrowed(
        self, asked: Question, lengths: Int32Array, loads: Mapping[str, float] | None
    ) -> tuple[Question, Int32Array]:
        """The question and lengths of the workers that `loads` names, or that are known to live."""
        among, present = self._trust.allowed, asked.loads
        if loads is not None:
            among, present = self._loads.given(loads)
        assert among is not None
        asked = asked._replace(
            workers=tuple(asked.workers[at] for at in among),
            lengths=asked.lengths[among],
            loads=present[among],
            work=asked.work[among],
            turns=asked.turns[among],
        )
        return asked, lengths[among]

    def finish(self, pick: Pick) -> None:
        """The request has ended, well or not. Idempotent."""
        with self.lock:
            if self._loads.remove(pick):
                self.parity.check(pick.worker, pick.namespace, pick.beginning)

    def finish_by_id(self, pick_id: int) -> None:
        """`finish`, where only `Pick.id` is known."""
        with self.lock:
            pick = self._loads.open_pick(pick_id)
            if pick is not None:
                self.finish(pick)


def _size(token_ids: Any) -> int:
    size = len(token_ids) // 4 if isinstance(token_ids, BYTES) else len(token_ids)
    if not size:
        raise InvalidTokensError("token_ids is empty; a prompt has at least one token")
    return size


def _key(key: str | bytes | None, token_ids: Any) -> bytes:
    if isinstance(key, str):
        return key.encode()
    if key is None:
        return beginning_of(token_ids).astype("<i4").tobytes()
    return key
