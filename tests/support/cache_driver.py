"""What may happen to a PrefixCache, one operation at a time, on it and on its model.

Whoever drives (hypothesis, or a seeded generator in `bench/soak.py`) only makes the choices.
"""

from dataclasses import replace
from typing import Any

from radixkv import DEFAULT, Namespace
from radixkv.cache.events import Cleared
from radixkv.errors import (
    InvalidArgumentError,
    InvalidNamespaceError,
    LiveRequestsError,
    PromptTooLongError,
    RequestEndedError,
    StaleWeightsError,
)
from tests.support.cache_choices import MAX_REQUESTS, ChosenCache
from tests.support.cache_compare import Pair, value_of
from tests.support.oracle import Fence, Twin

KEPT_REQUESTS = 8


class CacheDriver(ChosenCache):
    def step(self) -> None:
        """One operation."""
        oracle = self.oracle
        live, room = len(oracle.live), len(oracle.free) + oracle.evictable_size
        is_full = live == MAX_REQUESTS or room <= 2 * oracle.page_size
        options = (FULL if live and is_full else ROOM) + ANY + (LIVE if live else [])
        operation = self.choose.pick(options)
        operation(self)
        self.counts[operation.__name__] += 1

    # ---- coming ----

    def admit(self) -> None:
        tokens, spans, space = self.prompt()
        store, priority = not self.choose.chance(15), self.choose.between(-1, 2)
        max_cached = self.choose.between(0, 9) if self.choose.chance(20) else None
        how: dict[str, Any] = {
            "content": spans,
            "store": store,
            "priority": priority,
            "max_cached": max_cached,
        }
        if len(tokens) > self.oracle.longest_of(space):
            self.refused(PromptTooLongError, self.cache.admit, tokens, space, **how)
        elif self.is_stale(space):
            self.refused(StaleWeightsError, self.cache.admit, tokens, space, **how)
        else:
            request = self.cache.admit(tokens, space, **how)
            twin = Twin(self.now(space), tokens, spans, store)
            if self.judge(lambda: self.oracle.admit(twin, max_cached, request, resumed=False)):
                assert request is not None
                self.begin(Pair(request, twin))

    def resume(self) -> None:
        pairs = [pair for pair in self.pairs if pair.request.state == "retracted"]
        if not pairs:
            return
        pair = self.choose.pick(pairs)
        tokens, own = pair.twin.tokens + self.tokens(0, 2), pair.twin.namespace
        if not tokens:
            self.refused(InvalidArgumentError, self.cache.admit, tokens, resume=pair.request)
        elif len(tokens) > self.oracle.longest_of(own):
            self.refused(PromptTooLongError, self.cache.admit, tokens, resume=pair.request)
        else:
            space = self.choose.pick((DEFAULT, own, replace(own, weight_version=0)))
            request = self.cache.admit(tokens, space, resume=pair.request)
            twin = replace(pair.twin, tokens=tokens, namespace=self.now(own))
            if self.judge(lambda: self.oracle.admit(twin, None, request, resumed=True)):
                assert request is pair.request
                self.pairs.remove(pair)
                self.begin(Pair(request, twin))

    def resume_wrongly(self) -> None:
        request = self.pair().request
        if request.state == "retracted":
            space = Namespace(extra_key="another")
            self.refused(InvalidNamespaceError, self.cache.admit, [1], space, resume=request)
        else:
            self.refused(RequestEndedError, self.cache.admit, [1], resume=request)

    def begin(self, pair: Pair) -> None:
        self.pairs.append(pair)
        self.compute(pair, pair.twin.cached_len)
        ended = [pair for pair in self.pairs if pair.request.state != "running"]
        for old in ended[:-KEPT_REQUESTS]:
            self.pairs.remove(old)

    # ---- growing ----

    def extend(self) -> None:
        pair, tokens = self.pair(), self.tokens(0, 4)
        if not self.is_refused(pair, len(tokens), self.cache.extend, tokens):
            slots, row = self.cache.extend(pair.request, tokens), pair.request.table
            if self.judge(lambda: self.oracle.reserve(pair.twin, len(tokens), row, slots)):
                self.append(pair, tokens)

    def reserve(self) -> None:
        pair, n = self.pair(), self.choose.between(0, 5)
        if not self.is_refused(pair, n, self.cache.reserve, n):
            slots, row = self.cache.reserve(pair.request, n), pair.request.table
            self.judge(lambda: self.oracle.reserve(pair.twin, n, row, slots))

    def commit(self) -> None:
        pair, tokens = self.pair(), self.tokens(0, 4)
        if self.is_refused(pair, len(tokens), self.cache.commit, tokens):
            return
        if len(pair.twin.tokens) + len(tokens) > len(pair.twin.row):
            self.refused(InvalidArgumentError, self.cache.commit, pair.request, tokens)
        else:
            self.cache.commit(pair.request, tokens)
            self.append(pair, tokens)

    def is_refused(self, pair: Pair, more: int, call, argument) -> bool:
        if pair.request.state != "running":
            self.refused(RequestEndedError, call, pair.request, argument)
        elif len(pair.twin.tokens) + more > self.oracle.longest_of(pair.twin.namespace):
            self.refused(PromptTooLongError, call, pair.request, argument)
        else:
            return False
        return True

    def append(self, pair: Pair, tokens: list[int]) -> None:
        start = len(pair.twin.tokens)
        pair.twin.tokens = pair.twin.tokens + tokens
        self.compute(pair, start)

    def compute(self, pair: Pair, start: int) -> None:
        for at in range(start, len(pair.twin.tokens)):
            self.memory.values[pair.request.slots[at]] = value_of(pair.twin.prefix(at + 1))

    # ---- sharing and ending ----

    def publish(self) -> None:
        pair, fence = self.pair(), self.fence()
        length = len(pair.twin.tokens)
        up_to = self.choose.pick((length, length, self.choose.between(0, length + 1)))
        if pair.request.state != "running":
            self.refused(RequestEndedError, self.cache.publish, pair.request, up_to)
        elif up_to > length:
            self.refused(InvalidArgumentError, self.cache.publish, pair.request, up_to)
        else:
            for _ in range(self.choose.between(1, 2)):
                self.cache.publish(pair.request, up_to, fence=fence)
                self.judge(lambda: self.publish_twin(pair.twin, up_to, fence))

    def publish_twin(self, twin: Twin, up_to: int, fence: Fence | None) -> None:
        self.oracle.publish(twin, up_to, fence, chunked=True)
        self.oracle.keep_bound(fence)

    def finish(self) -> None:
        pair, fence = self.pair(), self.fence()
        length, is_running = len(pair.twin.tokens), pair.request.state == "running"
        up_to = self.choose.pick((None, length, length, self.choose.between(0, length + 1)))
        computed = 0 if up_to is None else up_to
        if is_running and computed > length:
            self.refused(InvalidArgumentError, self.cache.finish, pair.request, up_to)
            return
        self.cache.finish(pair.request, up_to, fence=fence)
        if is_running:
            self.judge(lambda: self.finish_twin(pair.twin, computed, fence))
        self.end_again(pair)

    def finish_twin(self, twin: Twin, computed: int, fence: Fence | None) -> None:
        self.oracle.publish(twin, max(computed, twin.shared), fence, chunked=False)
        self.oracle.end(twin, "finished", fence)

    def abort(self) -> None:
        self.drop(self.cache.abort, "aborted")

    def retract(self) -> None:
        self.drop(self.cache.retract, "retracted")

    def drop(self, call, state: str) -> None:
        pair, fence = self.pair(), self.fence()
        is_running = pair.request.state == "running"
        call(pair.request, fence=fence)
        if is_running:
            self.judge(lambda: self.oracle.end(pair.twin, state, fence))
        elif state == "aborted":
            pair.twin.give_up()
        self.end_again(pair)

    def end_again(self, pair: Pair) -> None:
        if self.choose.chance(30):
            name = self.choose.pick(("finish", "abort", "retract"))
            getattr(self.cache, name)(pair.request)
            if name == "abort":
                pair.twin.give_up()
            self.judge(lambda: None)

    # ---- branching and going back ----

    def fork(self) -> None:
        pair, n, fence = self.pair(), self.choose.between(0, 2), self.fence()
        if pair.request.state != "running":
            self.refused(RequestEndedError, self.cache.fork, pair.request, n)
        elif n == 0:
            self.refused(InvalidArgumentError, self.cache.fork, pair.request, n)
        else:
            forked = self.cache.fork(pair.request, n, fence=fence)
            twins = self.judge(lambda: self.oracle.fork(pair.twin, n, fence, forked))
            if forked is not None:
                self.copied(forked.source, forked.target)
                self.pairs += map(Pair, forked.requests, twins)

    def rollback(self) -> None:
        pair, fence = self.pair(), self.fence()
        length = self.choose.between(0, len(pair.twin.tokens) + 1)
        if pair.request.state != "running":
            self.refused(RequestEndedError, self.cache.rollback, pair.request, length)
        elif length > len(pair.twin.tokens):
            self.refused(InvalidArgumentError, self.cache.rollback, pair.request, length)
        else:
            for _ in range(self.choose.between(1, 2)):
                self.roll_back(pair, length, fence)

    def roll_back(self, pair: Pair, length: int, fence: Fence | None) -> None:
        copies, row = self.cache.rollback(pair.request, length, fence=fence), pair.request.table
        self.judge(lambda: self.oracle.rollback(pair.twin, length, fence, row, copies))
        if copies is not None:
            self.copied(copies.source, copies.target)

    def copied(self, source, target) -> None:
        if self.copies_itself:
            assert not len(source)
            assert not len(target)
        else:
            self.memory.copy(source, target)

    # ---- the whole cache ----

    def look(self) -> None:
        tokens, spans, space = self.prompt()
        prefix = Twin(self.now(space), tokens, spans).prefix(len(tokens))
        expected = [] if self.is_stale(space) else self.oracle.match(prefix)
        assert self.cache.probe(tokens, space, content=spans) == len(expected)
        if not spans:
            assert self.cache.probe_batch([tokens, []], space) == [len(expected), 0]
        self.judge(lambda: None)
        match = self.cache.match_prefix(tokens, space, content=spans)
        assert (match.length, match.slots.tolist()) == (len(expected), expected)
        self.oracle.totals.update(lookup_tokens=len(tokens), hit_tokens=len(expected))

    def evict(self) -> None:
        n = self.choose.between(0, self.cache.num_slots)
        evicted = self.cache.evict(n)
        assert evicted == self.judge(lambda: self.oracle.evict(n))

    def complete(self) -> None:
        """Work on the device gets done, in any order."""
        for fence in self.fences:
            fence.done = self.choose.chance(60)
        self.fences = [fence for fence in self.fences if not fence.done]

    def begin_again(self) -> None:
        self.choose.pick((self.reset, self.set_weight_version))()

    def reset(self) -> None:
        force = self.choose.chance(50)
        if self.oracle.live and not force:
            self.refused(LiveRequestsError, self.cache.reset)
        else:
            self.cache.reset(force)
            self.judge(self.forget)

    def set_weight_version(self) -> None:
        version = self.choose.between(0, 2)
        self.cache.set_weight_version(version)
        if version != self.oracle.weight_version:
            self.oracle.weight_version = version
            self.judge(self.forget)

    def forget(self) -> None:
        self.oracle.forget()
        assert self.oracle.changes.popleft() == Cleared()


# What may be done while there is room, while there is none, at any time, and with live requests: as
# often as it stands here.
ROOM = [*[CacheDriver.admit] * 20, *[CacheDriver.resume] * 5]
FULL = [CacheDriver.admit, CacheDriver.resume, *[CacheDriver.finish] * 10]
ANY = [
    *[CacheDriver.complete] * 4,
    *[CacheDriver.look] * 3,
    CacheDriver.evict,
    CacheDriver.begin_again,
]
LIVE = [
    *[CacheDriver.extend] * 5,
    *[CacheDriver.reserve] * 2,
    *[CacheDriver.commit] * 3,
    *[CacheDriver.publish] * 7,
    *[CacheDriver.finish] * 10,
    *[CacheDriver.abort] * 3,
    *[CacheDriver.retract] * 4,
    CacheDriver.resume_wrongly,
    *[CacheDriver.fork] * 3,
    *[CacheDriver.rollback] * 4,
]
