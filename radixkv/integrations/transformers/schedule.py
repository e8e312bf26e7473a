"""Which generations run, which wait, and what the next step computes."""

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radixkv.arrays import common_length
from radixkv.attention import AttentionBatch
from radixkv.cache import PrefixCache
from radixkv.cache.request import Request
from radixkv.errors import RadixKVError
from radixkv.integrations.transformers.generation import Generation
from radixkv.pages import round_down
from radixkv.tree import DEFAULT, Namespace


class Work(NamedTuple):
    """What one generation computes in a step: the tokens [computed, end) of its request."""

    generation: Generation
    request: Request
    end: int

    @property
    def token_ids(self) -> NDArray[np.int32]:
        return self.request.token_ids[self.generation.computed : self.end]

    @property
    def samples(self) -> bool:
        """Whether the next token can be sampled after it."""
        return self.end == self.request.length

    @property
    def ends_next(self) -> bool:
        """Whether it is known to end with this step, or to go on otherwise than by a token."""
        generation = self.generation
        is_last = len(generation.tokens) + 1 == generation.max_new_tokens
        return is_last or not self.samples or generation.is_prefilling


class Step(NamedTuple):
    """All work of a step, packed."""

    work: list[Work]
    token_ids: NDArray[np.int32]
    batch: AttentionBatch

    @property
    def sampling(self) -> list[Generation]:
        """The generations whose next token is sampled."""
        return [each.generation for each in self.work if each.samples]

    @property
    def logits_indices(self) -> NDArray[np.int64]:
        """Indices among the packed tokens of those after which the next tokens are sampled."""
        return self.batch.last_tokens[[each.samples for each in self.work]]


class Schedule:
    """First come, first served, as many at once as `max_batch` and the cache have room for.

    A waiting generation is passed over while the beginning of its prompt is computed for another.
    When a token finds no slot, the youngest gives all of its own back and waits again, first in
    line. So the oldest always goes on, and all finish.
    """

    def __init__(
        self, cache: PrefixCache, max_batch: int, chunk_size: int | None, *, reuse: bool
    ) -> None:
        self.cache = cache
        self.max_batch, self.chunk_size, self.reuse = max_batch, chunk_size, reuse
        self.waiting: deque[Generation] = deque()
        self.running: list[Generation] = []  # oldest first
        self._expected: AttentionBatch | None = None

    def next_step(self) -> Step | None:
        """Admit what fits and find a slot for every known token. None: nothing can be computed."""
        self._admit_waiting()
        work = [self._work(each) for each in list(self.running) if self._extend(each)]
        if not work:
            return None
        rows = [request.slots[:end] for _, request, end in work]
        token_ids = [each.token_ids for each in work]
        versions = [each.request.row_version for each in work]
        batch = AttentionBatch(rows, [len(ids) for ids in token_ids], versions)
        if self._expected is not None and _is_same(batch, self._expected):
            batch = self._expected
        return Step(work, np.concatenate(token_ids), batch)

    def batch_after(self, step: Step) -> AttentionBatch | None:
        """What the next step computes if all go on as they do; `next_step` then gives just that.

        It takes no tokens to know, so it can be planned while `step` is still being computed. The
        slots are reserved, which may evict for a step that never comes: a token may end one.
        None: it will be another, or there is no room, or a waiting generation may come in.
        """
        if self.waiting and len(self.running) < self.max_batch:
            return None
        if not step.batch.is_decode or any(each.ends_next for each in step.work):
            return None
        if any(self.cache.reserve(each.request, 1) is None for each in step.work):
            return None
        rows = [request.table[: end + 1] for _, request, end in step.work]
        self._expected = AttentionBatch(rows, step.batch.query_lens, step.batch.row_versions)
        return self._expected

    def computed(self, step: Step) -> None:
        """K/V of the step is there; prompts share theirs from now on."""
        for generation, request, end in step.work:
            if generation.is_prefilling:
                generation.numbers.computed_tokens += end - generation.computed
                self.cache.publish(request, end)
            generation.computed = end

    def remove(self, generation: Generation) -> None:
        """A running generation has ended: everything it holds is given back."""
        if generation.finish_reason in ("stop", "length"):
            self.cache.finish(_request(generation), generation.computed)
        else:
            self.cache.abort(_request(generation))
        self.running.remove(generation)

    def _admit_waiting(self) -> None:
        passed_over = 0
        for generation in self.waiting.copy():
            if self.max_batch in (len(self.running), passed_over):
                return
            if not generation.is_done:
                if self._is_being_computed(generation):
                    passed_over += 1
                    continue
                if not self._admit(generation):
                    return
            self.waiting.remove(generation)

    def _is_being_computed(self, generation: Generation) -> bool:
        """Whether it gains by waiting for what one that runs is about to publish.

        It does if it would compute the same tokens meanwhile: a chunk of them or more, or most of
        the missing ones.
        """
        if not self.reuse:
            return False
        tokens = generation.all_tokens
        cached = self.cache.probe(tokens, generation.namespace)
        gain = self._soon_published(generation.namespace, tokens) - cached
        lacking = len(tokens) - cached
        return gain > 0 and gain >= min(self.chunk_size or lacking, lacking / 2)

    def _soon_published(self, namespace: Namespace, tokens: NDArray[np.int32]) -> int:
        """Leading tokens, in whole pages, that those who prefill have in common with `tokens`."""
        common = [
            common_length(tokens, _request(each).token_ids)
            for each in self.running
            if each.is_prefilling and each.namespace == namespace
        ]
        return round_down(max(common, default=0), self.cache.page_size)

    def _admit(self, generation: Generation) -> bool:
        """Whether it no longer waits: it runs now, or it never can."""
        try:
            request = self.cache.admit(
                generation.all_tokens,
                DEFAULT if generation.request else generation.namespace,
                store=self.reuse,
                max_cached=None if self.reuse else 0,
                resume=generation.request,
            )
        except RadixKVError as error:
            generation.finish_reason, generation.error = "failed", error
            return True
        if request is None:
            return False
        generation.start(request)
        self.running.append(generation)
        return True

    def _extend(self, generation: Generation) -> bool:
        """Whether all of its tokens have slots; if not, it was retracted."""
        while generation.is_running:
            request = _request(generation)
            missing = generation.tokens[request.length - len(generation.prompt) :]
            if not missing or self.cache.extend(request, missing) is not None:
                return True
            self._retract(self.running[-1])
        return False

    def _retract(self, generation: Generation) -> None:
        """First in line again; what it has computed stays cached while there is room."""
        request = _request(generation)
        self.cache.publish(request, generation.computed)
        self.cache.retract(request)
        generation.numbers.retractions += 1
        self.running.remove(generation)
        self.waiting.appendleft(generation)

    def _work(self, generation: Generation) -> Work:
        request = _request(generation)
        chunk = self.chunk_size or request.length
        return Work(generation, request, min(request.length, generation.computed + chunk))


def _is_same(batch: AttentionBatch, other: AttentionBatch) -> bool:
    """Whether the row versions promise that they have the same rows."""
    return batch.row_versions == other.row_versions and (
        [*map(len, batch.rows)] == [*map(len, other.rows)] and batch.query_lens == other.query_lens
    )


def _request(generation: Generation) -> Request:
    assert generation.request is not None
    return generation.request
