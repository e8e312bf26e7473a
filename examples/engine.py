"""An engine in a page: continuous batching over a `PrefixCache`, with what may go wrong handled.

    python examples/engine.py

The model is a toy with real K/V, a number a slot: if a slot were given out twice, answers would
differ from those without a cache.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from radixkv import PrefixCache, Request


class ToyModel:
    """The next token depends on all tokens before it, which are read from the K/V pool."""

    def __init__(self, num_slots: int) -> None:
        self.kv = np.zeros(num_slots + 1, np.int64)  # slot 0 is padding
        self.computed = 0

    def forward(self, request: Request, begin: int) -> int:
        """Write the K/V of the tokens from `begin` on; the next token."""
        self.kv[request.slots[begin:]] = request.token_ids[begin:]
        self.computed += request.length - begin
        seen = self.kv[request.slots]
        return int(seen @ np.arange(1, len(seen) + 1)) % 1000


@dataclass
class Job:
    """A prompt and its answer. `request` is what the cache has of it, if it ever ran."""

    prompt: list[int]
    max_new_tokens: int
    answer: list[int] = field(default_factory=list)
    request: Request | None = None


class Engine:
    def __init__(self, model: ToyModel, cache: PrefixCache, max_batch: int = 8) -> None:
        self.model, self.cache, self.max_batch = model, cache, max_batch
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []  # the oldest first
        self.retracted = 0

    def run(self, jobs: list[Job]) -> None:
        self.waiting.extend(jobs)
        while self.waiting or self.running:
            self.admit()
            for job in self.running.copy():
                if job in self.running:  # not retracted for an older one
                    self.decode(job)

    def admit(self) -> None:
        """Start what fits, first come, first served. Raises PromptTooLongError if it never fits."""
        while self.waiting and len(self.running) < self.max_batch:
            job = self.waiting[0]
            request = self.cache.admit(job.prompt + job.answer, resume=job.request)
            if request is None:
                return  # no room now: those that run leave some when they end
            job.request = request
            self.running.append(self.waiting.popleft())
            self.compute(job, request, request.cached_len)

    def decode(self, job: Job) -> None:
        """One token more, for which the youngest give way."""
        request = job.request
        assert request is not None
        while self.cache.extend(request, job.answer[-1:]) is None:
            self.retract(youngest := self.running[-1])
            if youngest is job:
                return
        self.compute(job, request, request.length - 1)

    def compute(self, job: Job, request: Request, begin: int) -> None:
        job.answer.append(self.model.forward(request, begin))
        self.cache.publish(request, up_to=request.length)  # others share it from now on
        if len(job.answer) == job.max_new_tokens:
            self.cache.finish(request)
            self.running.remove(job)

    def retract(self, job: Job) -> None:
        """Back to the line. What it published stays cached until room is needed."""
        assert job.request is not None
        self.cache.retract(job.request)
        self.running.remove(job)
        self.waiting.appendleft(job)
        self.retracted += 1


if __name__ == "__main__":
    system = list(range(100, 140))  # a system prompt that all share
    jobs = [Job([*system, 7, turn, turn + 1], max_new_tokens=16) for turn in range(12)]
    engine = Engine(ToyModel(160), PrefixCache(160))
    engine.run(jobs)
    asked = sum(len(job.prompt) + len(job.answer) - 1 for job in jobs)
    print(f"{engine.model.computed} of {asked} tokens computed, {engine.retracted} retracted")
