"""A pool that holds all requests in flight, against a slow and obvious model of it."""

from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np
import pytest

from radixkv.lab.logs.requests import in_order
from radixkv.lab.logs.workloads import generate
from radixkv.lab.replay.pool import longest_request
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.setting import Setting
from tests.lab.logs import random_log


@dataclass
class SlowPool:
    """Every cached token is a prefix with the time of its last use; an engine of few lines."""

    capacity: int
    in_flight: int
    outputs: bool
    cached: dict[tuple[int, ...], int] = field(default_factory=dict)
    locked: Counter[tuple[int, ...]] = field(default_factory=Counter)
    running: deque = field(default_factory=deque)
    answers: int = 0
    now: int = 0

    def serve(self, prompt, answer):
        while len(self.running) == self.in_flight:
            self.end()
        if len(prompt) + len(answer) > self.capacity:
            return 0
        while (found := self.admit(prompt, answer)) is None:
            self.end()
        if self.in_flight == 1:
            self.end()
        return found

    def admit(self, prompt, answer):
        matched = 0
        while matched < len(prompt) - 1 and prompt[: matched + 1] in self.cached:
            matched += 1
        path = {prompt[:end] for end in range(1, matched + 1)}
        need = len(prompt) - matched + len(answer)
        keep = {prefix for prefix in self.cached if self.locked[prefix] or prefix in path}
        if self.capacity - len(keep) - self.answers < need:
            return None
        while self.capacity - len(self.cached) - self.answers < need:
            parents = {prefix[:-1] for prefix in self.cached}
            leaves = [each for each in self.cached if each not in keep and each not in parents]
            del self.cached[min(leaves, key=self.cached.__getitem__)]
        self.touch(prompt)
        for end in range(1, len(prompt) + 1):
            self.locked[prompt[:end]] += 1
        self.answers += len(answer)
        self.running.append((prompt, answer))
        return matched

    def touch(self, tokens):
        self.now += 1
        for end in range(1, len(tokens) + 1):
            self.cached[tokens[:end]] = self.now

    def end(self):
        prompt, answer = self.running.popleft()
        self.answers -= len(answer)
        for end in range(1, len(prompt) + 1):
            self.locked[prompt[:end]] -= 1
        self.touch(prompt + answer if self.outputs else prompt)


def slow(log, setting):
    pool = SlowPool(setting.capacity, setting.in_flight, setting.outputs)
    return [
        pool.serve(tuple(each.token_ids.tolist()), tuple(each.outputs[0].tolist())) for each in log
    ]


@pytest.mark.parametrize("outputs", [False, True])
@pytest.mark.parametrize("in_flight", [1, 3, 16])
@pytest.mark.parametrize("capacity", [0, 20, 24, 60, 150])
def test_hit_rates_are_those_of_a_slow_model(rng, outputs, in_flight, capacity):
    log = random_log(rng)
    setting = Setting(capacity=capacity, in_flight=in_flight, outputs=outputs)
    found = replay(log, setting)
    assert found.cached_tokens.tolist() == slow(log, setting)
    assert found.peak_in_flight <= capacity


@pytest.mark.parametrize("workload", ["chat", "agents", "tree-search"])
@pytest.mark.parametrize("page_size", [1, 16])
def test_sixteen_in_flight_never_take_more_than_the_pool(workload, page_size):
    log = in_order(generate(workload, requests=300, seed=5), "interleave-16")
    for factor in (1, 2, 5):
        capacity = factor * longest_request(log, page_size)
        found = replay(log, Setting(page_size, capacity, in_flight=16, outputs=True))
        assert found.peak_in_flight <= capacity
        assert found.refused == 0
        assert sorted(found.ids.tolist()) == [*range(300)]
        assert found.prompt_tokens.sum() == log.lengths.sum()


def test_a_pool_with_room_for_all_is_as_good_as_none(rng):
    log = random_log(rng)
    whole = replay(log, Setting(in_flight=16))
    large = replay(log, Setting(capacity=100_000, in_flight=16))
    assert np.array_equal(whole.cached_tokens, large.cached_tokens)
    assert large.waited == 0
