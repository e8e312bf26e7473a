"""An engine's threads and a service's threads share one cache."""

import random
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from radixkv.cache.runs import replay, runs_of
from radixkv.errors import HistoryLostError
from tests.support.caches import admit, store


@pytest.fixture(autouse=True)
def busy_switching() -> Iterator[None]:
    """Threads take turns as often as Python allows."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def run_together(*works: Callable[[], None], until_done: tuple = ()) -> None:
    """Each work in a thread; those of `until_done` again and again as long as a work runs."""
    errors: list[BaseException] = []
    over = threading.Event()

    def guarded(work: Callable[[], None], *, again: bool) -> None:
        try:
            work()
            while again and not over.is_set():
                work()
        except BaseException as error:
            errors.append(error)

    doing = [threading.Thread(target=guarded, args=(w,), kwargs={"again": False}) for w in works]
    asking = [
        threading.Thread(target=guarded, args=(w,), kwargs={"again": True}) for w in until_done
    ]
    for thread in (*asking, *doing):
        thread.start()
    for thread in doing:
        thread.join()
    over.set()
    for thread in asking:
        thread.join()
    assert errors == []


def engine(cache, seed: int, steps: int) -> None:
    """Requests come, grow, branch and go, each ended in the end."""
    rng, live = random.Random(seed), []
    for _ in range(steps):
        request = cache.admit([rng.randint(1, 3) for _ in range(rng.randint(1, 6))])
        if request is not None:
            live.append(request)
            cache.publish(request, rng.randint(0, request.length))
            cache.extend(request, [rng.randint(1, 3)])
            forked = cache.fork(request, 1) if rng.random() < 0.2 else None
            live += forked.requests if forked else []
            cache.rollback(request, rng.randint(0, request.length))
        if live and (request is None or len(live) > 2):
            done = live.pop(rng.randrange(len(live)))
            rng.choice((cache.finish, cache.abort, cache.retract))(done)
        if rng.random() < 0.02:
            cache.reset(force=True)
    for request in live:
        cache.finish(request, up_to=request.length)


def test_questions_are_answered_while_engines_work(new_cache):
    cache = new_cache(32)

    def sizes_sum_up() -> None:
        stats = cache.stats()
        parts = (stats.free, stats.allocated, stats.evictable, stats.protected, stats.waiting)
        assert sum(parts) == 32
        assert stats.cached_tokens <= stats.prompt_tokens
        assert stats.hit_tokens <= stats.lookup_tokens

    def answers_fit() -> None:
        match = cache.match_prefix([1, 2, 3, 1])
        assert len(match.slots) == match.length <= 4
        assert 0 <= cache.probe([1, 2, 3]) <= 3
        short, long = cache.probe_batch([[1, 2], [1, 2, 3]])
        assert short <= long, "a batch is answered at one revision"

    def is_whole() -> None:
        assert cache.check_integrity() == []
        assert all(len(request.slots) <= 32 for request in cache.live_requests)

    run_together(
        lambda: engine(cache, 1, 250),
        lambda: engine(cache, 2, 250),
        until_done=(sizes_sum_up, answers_fit, is_whole),
    )
    assert cache.live_requests == []
    stats = cache.stats()
    assert (stats.allocated, stats.protected, stats.waiting) == (0, 0, 0)


def test_a_follower_of_the_log_has_what_is_resident(new_cache):
    cache = new_cache(32)
    known, revision = {}, 0

    def follow() -> None:
        nonlocal revision
        while True:
            try:
                events = cache.events.since(revision)
            except HistoryLostError:
                revision = cache.events.compact_revision  # a reset came between
                known.clear()
                continue
            replay(events, known)
            revision = events[-1].revision if events else revision
            return

    run_together(lambda: engine(cache, 3, 500), until_done=(follow,))
    follow()
    resident = runs_of(cache.tree.walk())
    assert known.keys() == resident.keys()
    assert all(known[run].codes.tolist() == resident[run].codes.tolist() for run in known)


def test_many_ends_of_one_request_are_one_end(new_cache):
    cache = new_cache()
    store(cache, [1, 2, 3])
    for _ in range(30):
        request = admit(cache, [1, 2, 3, 4])
        run_together(
            *[lambda r=request: cache.abort(r)] * 2,
            *[lambda r=request: cache.retract(r)] * 2,
        )
        assert (cache.free_size, cache.tree.protected_size) == (13, 0)


def test_many_admissions_of_one_prompt_share_it_in_the_end(new_cache):
    cache = new_cache(64)
    requests = []

    def live_once() -> None:
        request = admit(cache, [1, 2, 3, 4])
        cache.publish(request, 4)
        requests.append(request)

    run_together(*[live_once] * 8)
    rows = {tuple(request.slots.tolist()) for request in requests}
    assert len(rows) == 1
    assert cache.free_size == 60
    run_together(*[lambda r=request: cache.finish(r, up_to=r.length) for request in requests])
    assert cache.tree.evictable_size == 4
