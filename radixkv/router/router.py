"""Router: an index of what each worker holds, a policy over it, and the load of each worker."""

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Self

from radixkv.arguments import as_int, as_number, as_text
from radixkv.arrays import Int32Array
from radixkv.cache.events import Update
from radixkv.errors import InvalidArgumentError, InvalidTokensError, NoWorkersError
from radixkv.router.cache_miss_sampling import (
    BYTES,
    SAMPLE_EVERY,
    CacheMissSampler,
    beginning_of,
)
from radixkv.router.feeding import Feeder, Source, WorkerClient, watch_of
from radixkv.router.index import PrefixIndex, WorkerView
from radixkv.router.loads import WorkerLoads, check_load
from radixkv.router.pick_input import PickInput
from radixkv.router.policies import new_policy
from radixkv.router.policies.policy import RoutingPolicy
from radixkv.router.probing import Prober
from radixkv.router.staleness import StalenessWeights
from radixkv.tree import DEFAULT, Namespace, TokenIds
from radixkv.tree.content import Content


class Pick(NamedTuple):
    """Where a prompt goes. Hand it to `Router.finish` when the request has ended.

    Attributes
    ----------
    worker
        The worker's name.
    matched_length
        Tokens that the worker holds.
    best_length
        The longest match of any that could be picked.
    reason
        For a person.
    id
        Names the pick in `Router.finish_by_id`.
    to_compute
        Tokens that the worker does not hold.
    namespace
        Of the prompt.
    beginning
        Of the prompt, where the router looks again.
    owner
        Who picked, see `Router.pick`.
    """

    worker: str
    matched_length: int
    best_length: int
    reason: str
    id: int
    to_compute: int
    namespace: Namespace
    beginning: Int32Array | None
    owner: str


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker as the router sees it.

    Attributes
    ----------
    view
        As the index sees it.
    address
        For people.
    load
        Of its picks that have not ended.
    recent_load
        Tokens that it computed recently, or is to compute; see `Router`.
    staleness_weight
        What its matches count, 0 to 1.
    is_here
        Whether it is known to live.
    last_error
        Of its watch or of a probe, until it answers again.
    """

    view: WorkerView
    address: str
    load: float
    recent_load: float
    staleness_weight: float
    is_here: bool
    last_error: str | None


class Router:
    """Chooses the worker of each prompt, in microseconds, without a call to any. Thread-safe.

    Parameters
    ----------
    policy
        A name in `POLICIES`, or a `RoutingPolicy`.
    core
        See `new_holdings`.
    silent_after_s
        Seconds: what a worker holds counts half as much for each such time that it is silent beyond
        the first.
    gone_after_s
        Seconds: a worker that is silent for longer, or whose watch fails, is picked only where all
        are.
    load_window_s
        Seconds after which a pick that is not finished counts as finished.
    recent_half_life_s
        Seconds: tokens that a worker has computed count half as much in its recent load after each
        such time.
    probe_every_s
        Seconds between probes of each worker that has a client, which shows how far its watch lags.
    clock
        Returns seconds that only grow.

    Attributes
    ----------
    cache_misses
        Of finished picks (a sample), how many workers did not cache the prompt's beginning. Where
        many did not, the router is asked about other tokens than the engines see.

    Examples
    --------
    >>> from radixkv import PrefixCache
    >>> router, cache = Router(), PrefixCache(16)
    >>> router.add_worker("a")
    >>> router.add_worker("b")
    >>> cache.finish(cache.admit([1, 2, 3]), up_to=3)
    >>> router.apply("b", cache.events.read(0, 0, 1 << 20))
    >>> pick = router.pick([1, 2, 9])
    >>> pick.worker, pick.matched_length
    ('b', 2)
    >>> router.finish(pick)
    """

    def __init__(
        self,
        policy: str | RoutingPolicy = "cache-aware",
        *,
        core: str | None = None,
        silent_after_s: float = 20.0,
        gone_after_s: float = 60.0,
        load_window_s: float = 60.0,
        recent_half_life_s: float = 180.0,
        probe_every_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        as_number(silent_after_s, "silent_after_s")
        as_number(gone_after_s, "gone_after_s")
        as_number(load_window_s, "load_window_s")
        as_number(recent_half_life_s, "recent_half_life_s", least=1e-3)
        as_number(probe_every_s, "probe_every_s", most=threading.TIMEOUT_MAX)
        self.index = PrefixIndex(core, clock=clock)
        self.policy = new_policy(policy) if isinstance(policy, str) else policy
        if not isinstance(getattr(self.policy, "name", None), str):
            raise InvalidArgumentError(
                f"policy must be a name in POLICIES or a RoutingPolicy; got {policy!r}"
            )
        self._clock = clock
        self._loads: WorkerLoads[Pick] = WorkerLoads(load_window_s, recent_half_life_s, clock())
        self._staleness = StalenessWeights(self.index, silent_after_s, gone_after_s)
        self._feeders: dict[str, Feeder] = {}
        self._addresses: dict[str, str] = {}
        self._picks = count()
        self.lock = threading.RLock()
        self.cache_misses = CacheMissSampler(self.index)
        self._prober = Prober(self.index, probe_every_s)

    # ---- workers ----

    def add_worker(
        self,
        worker: str,
        source: Source | None = None,
        *,
        page_size: int = 1,
        num_slots: int | None = None,
        address: str = "",
    ) -> None:
        """A worker that prompts may go to from now on.

        Parameters
        ----------
        worker
            The worker's name.
        source
            Begins its watch (see `feeding.py`); a thread follows it. None: feed it by `apply`.
        page_size
            Tokens a page of its cache.
        num_slots
            Slots of its cache; see `PrefixIndex.add_worker`.
        address
            For people, in `workers`.

        Raises
        ------
        InvalidArgumentError
            For a worker that was added before.
        """
        as_text(address, "address")
        if source is not None and not callable(source):
            raise InvalidArgumentError(f"source must begin a watch when called; got {source!r}")
        with self.lock:
            self.index.add_worker(worker, page_size=page_size, num_slots=num_slots)
            self._addresses[worker] = address
            self._loads.add_worker(worker)
            if source is not None:
                self._feeders[worker] = Feeder(self.index, worker, source, self.apply)
                self._feeders[worker].start()

    def follow(self, worker: str, client: WorkerClient, *, address: str = "") -> None:
        """`add_worker`, fed by a client's watch. The client stays open until the worker goes.

        Parameters
        ----------
        worker
            The worker's name.
        client
            Of the worker's server, such as a `Client`.
        address
            For people, in `workers`.

        Raises
        ------
        InvalidArgumentError
            For a worker that was added before.
        """
        if not callable(getattr(client, "watch", None)):
            raise InvalidArgumentError(f"client must be a client of a worker; got {client!r}")
        self.add_worker(worker, watch_of(client, self.index, worker), address=address)
        with self.lock:
            self._prober.add(worker, client, self._feeders[worker])

    def remove_worker(self, worker: str) -> None:
        """No prompt goes there from now on; its watch ends.

        Parameters
        ----------
        worker
            The worker's name.

        Raises
        ------
        InvalidArgumentError
            For an unknown name.
        """
        as_text(worker, "worker")
        self._prober.remove(worker)
        with self.lock:
            feeder = self._feeders.pop(worker, None)
        if feeder is not None:
            feeder.stop()
        with self.lock:
            self.index.remove_worker(worker)
            del self._addresses[worker]
            self._loads.remove_worker(worker)

    def apply(self, worker: str, update: Update) -> None:
        """Follow a worker's watch by one update; see `PrefixIndex.apply`.

        Parameters
        ----------
        worker
            The worker's name.
        update
            What a watch brought.

        Raises
        ------
        InvalidArgumentError
            For an unknown worker.
        """
        computed = self.index.apply(worker, update)
        if computed:
            with self.lock:
                self._loads.advance(self._clock())
                self._loads.add_computed(worker, computed)

    def workers(self) -> list[WorkerStatus]:
        """All workers, by name.

        Returns
        -------
        list[WorkerStatus]
            As the router sees them now.
        """
        with self.lock:
            self._loads.advance(self._clock())
            return [self._status(worker) for worker in sorted(self.index.workers)]

    def _status(self, worker: str) -> WorkerStatus:
        feeder = self._feeders.get(worker)
        view = self.index.view(worker)
        load, recent_load = self._loads.of(worker)
        return WorkerStatus(
            view=view,
            address=self._addresses[worker],
            load=load,
            recent_load=recent_load,
            staleness_weight=self._staleness.weight(view),
            is_here=self._staleness.is_here(view, feeder),
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
        load_weight: float = 1.0,
        owner: str = "",
    ) -> Pick:
        """The worker that a prompt goes to; it counts as its load until `finish`.

        Parameters
        ----------
        token_ids
            (n,) int32, n >= 1; or what `as_token_ids` reads.
        namespace
            What must be equal besides the tokens.
        content
            What placeholder tokens stand for: `ContentSpan`s, or (start, length, id: bytes).
        key
            What belongs together (a session, a tenant), for policies that go by it; None: the
            prompt's first 64 tokens.
        loads
            Present loads of the workers that may be picked, in one unit, instead of those counted
            here.
        load_weight
            What this prompt adds to the load counted here.
        owner
            Whose pick it is; `finish_by_id` of another does not end it.

        Returns
        -------
        Pick
            The worker and tokens that it holds; hand it to `finish`.

        Raises
        ------
        NoWorkersError
            Where no worker may be picked.
        InvalidTokensError
            For token ids that are not (n,) integers from 0 to 2**31 - 1.
        InvalidArgumentError
            For an unknown worker.
        """
        if type(load_weight) is not float or load_weight != 1.0:
            check_load(load_weight, "load_weight")
        if type(owner) is not str:
            as_text(owner, "owner")
        if key is not None and not isinstance(key, (str, bytes)):
            raise InvalidArgumentError(f"key must be a str, bytes or None; got {key!r}")
        with self.lock:
            now = self._clock()
            if now >= self._loads.due_at:
                self._loads.advance(now)
            self._staleness.refresh(now, self._feeders)
            names, lengths = self.index.lengths(token_ids, namespace, content=content)
            own, weights = self._loads, self._staleness.weights
            weighed = lengths if weights is None else lengths * weights
            size, key_of = _size(token_ids), partial(_key, key, token_ids)
            asked = PickInput(
                names, weighed, own.loads, own.pending, own.recent_loads, own.last_picked, size,
                key_of,
            )  # fmt: skip
            if loads is not None or self._staleness.allowed is not None:
                asked, lengths = self._narrowed(asked, lengths, loads)
            if not asked.workers:
                raise NoWorkersError("there is no worker to pick", workers=len(names))
            at, reason = self.policy.choose(asked)
            matched, longest = lengths.item(at), lengths.item(lengths.argmax())
            is_sample = next(self._picks) % SAMPLE_EVERY == 0 and not content
            beginning = beginning_of(token_ids) if is_sample else None
            pick = Pick(asked.workers[at], matched, longest, reason, secrets.randbits(62) + 1,
                        size - matched, namespace, beginning, owner)  # fmt: skip
            own.add(pick, load_weight, now)
            return pick

    def _narrowed(
        self, asked: PickInput, lengths: Int32Array, loads: Mapping[str, float] | None
    ) -> tuple[PickInput, Int32Array]:
        """The input and lengths of the workers that `loads` names, or that are known to live."""
        among, present, pending = self._staleness.allowed, asked.loads, asked.pending
        if loads is not None:
            among, present = self._loads.given(loads)
            pending = present * self._loads.usual_work(asked.prompt_length)
        assert among is not None
        asked = asked._replace(
            workers=tuple(asked.workers[at] for at in among),
            lengths=asked.lengths[among],
            loads=present[among],
            pending=pending[among],
            recent_loads=asked.recent_loads[among],
            last_picked=asked.last_picked[among],
        )
        return asked, lengths[among]

    def finish(self, pick: Pick) -> None:
        """The request has ended, successfully or not. Idempotent.

        Parameters
        ----------
        pick
            What `pick` returned.
        """
        if not isinstance(pick, Pick):
            raise InvalidArgumentError(f"pick must be what Router.pick gave; got {pick!r}")
        with self.lock:
            if self._loads.remove(pick):
                self.cache_misses.check(pick.worker, pick.namespace, pick.beginning)

    def finish_by_id(self, pick_id: int, owner: str = "") -> None:
        """`finish`, where only `Pick.id` is known; nothing for a pick of another owner.

        Parameters
        ----------
        pick_id
            `Pick.id`.
        owner
            Who picked.
        """
        as_text(owner, "owner")
        with self.lock:
            pick = self._loads.open_pick(as_int(pick_id, "pick_id"))
            if pick is not None and pick.owner == owner:
                self.finish(pick)

    def num_open(self, owner: str) -> int:
        """Picks of `owner` that have not ended.

        Parameters
        ----------
        owner
            Who picked.

        Returns
        -------
        int
            Picks.
        """
        as_text(owner, "owner")
        with self.lock:
            self._loads.advance(self._clock())
            return self._loads.num_open_of[owner]


def _size(token_ids: Any) -> int:
    size = len(token_ids) // 4 if isinstance(token_ids, BYTES) else len(token_ids)
    if not size:
        raise InvalidTokensError("token_ids must have one token or more; got none")
    return size


def _key(key: str | bytes | None, token_ids: Any) -> bytes:
    if isinstance(key, str):
        return key.encode(errors="surrogatepass")
    if key is None:
        return beginning_of(token_ids).astype("<i4").tobytes()
    return key
