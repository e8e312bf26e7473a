"""Continuous batching over a prefix cache: requests come and go, each step computes what it can.

submit -> waiting --admit--> running: prefill in chunks, then one token a step -> done
             ^                  |
             └──── retract ─────┘   the youngest, where an older one's token finds no slot
"""

import threading
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from radixkv.arguments import at_least
from radixkv.attention import AttentionBackend
from radixkv.cache import PrefixCache
from radixkv.errors import (
    InvalidArgumentError,
    InvalidTokensError,
    ModelOutputError,
    PromptTooLongError,
)
from radixkv.integrations.transformers.generation import FinishReason, Generation, OnToken
from radixkv.integrations.transformers.paged_model import PagedModel, pool_for
from radixkv.integrations.transformers.schedule import Schedule, Step
from radixkv.memory.kv_pool import TokenToKVPool, as_kv_dtype
from radixkv.tree import DEFAULT, Namespace, TokenIds, as_token_ids
from radixkv.tree.namespace import check_namespace

EosIds: TypeAlias = "int | TokenIds | Set[int] | Tensor"


class Generator:
    """Greedy generation with `model` for many prompts at once, which share their prefixes.

    Parameters
    ----------
    model
        A causal language model of transformers.
    num_slots
        Slots of the cache that is made.
    page_size
        Its tokens a page.
    policy
        What it evicts first, a name in `radixkv.tree.POLICIES`.
    max_batch
        Generations that run at once.
    chunk_size
        Most prompt tokens of one generation that a step computes (None: all).
    cache
        The caller's own, in place of these three; a service may answer from it at the same time.
    reuse
        False computes every prompt in full.
    backend
        On a CUDA device "tree", "fa3" and "triton" are the fast ones; with `graphs` their decode
        steps are captured in CUDA graphs.
    kv_dtype
        Of the KV pool, the model's if None.
    graphs
        Capture decode steps in CUDA graphs, where the backend can.

    Raises
    ------
    InvalidArgumentError
        For a model with features that radixkv does not serve.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        num_slots: int | None = None,
        page_size: int = 1,
        max_batch: int = 8,
        chunk_size: int | None = 256,
        policy: str = "lru",
        cache: PrefixCache | None = None,
        reuse: bool = True,
        backend: str = "reference",
        kv_dtype: torch.dtype | str | None = None,
        graphs: bool = True,
    ) -> None:
        at_least(1, max_batch=max_batch)
        if chunk_size is not None:
            at_least(1, chunk_size=chunk_size)
        if cache is not None and num_slots is not None:
            raise InvalidArgumentError("num_slots or cache must be given; got both")
        if cache is None:
            cache = _new_cache(num_slots, page_size, policy, max_batch)
        self.cache = cache
        self.pool = _pool_of(cache, model, kv_dtype)
        max_graph = max_batch if graphs else None
        config: Any = model.config.get_text_config()
        self._vocab_size: int = config.vocab_size
        context: int = getattr(config, "max_position_embeddings", None) or cache.num_slots
        self._max_length = min(cache.num_slots, cache.max_context_len, context)
        self._paged = PagedModel(
            model, self.pool, backend, max_batch=max_graph, max_context=self._max_length
        )
        self._eos_ids = _eos_ids(model)
        self._schedule = Schedule(cache, max_batch, chunk_size, reuse=reuse)
        self._lock = threading.RLock()
        self._is_undisturbed = False
        self._to_cancel: list[Generation] = []

    @property
    def attention(self) -> AttentionBackend:
        """The backend. On a device its `explain()` says what was chosen and why for the step that
        was planned last, which may be the next."""
        return self._paged.backend

    @property
    def num_waiting(self) -> int:
        """Generations that wait for room."""
        return sum(not each.is_done for each in self._schedule.waiting.copy())

    @property
    def num_running(self) -> int:
        """Generations that hold slots."""
        return len(self._schedule.running)

    def submit(
        self,
        prompt_ids: TokenIds,
        max_new_tokens: int = 128,
        *,
        namespace: Namespace = DEFAULT,
        eos_ids: "EosIds | None" = None,
        on_token: OnToken | None = None,
        keep_logits: bool = False,
    ) -> Generation:
        """Queue a prompt, which `step` and `run` work on. Never waits; callable from any thread.

        Parameters
        ----------
        prompt_ids
            (n,) int32, n >= 1, below the vocabulary's size; or what `as_token_ids` reads.
        max_new_tokens
            Fewer where the pool or the model's context ends.
        namespace
            What must be equal besides the tokens.
        eos_ids
            End on it, or on any of them: an int, a set, or what `as_token_ids` reads (the model's
            own if None).
        on_token
            Called from `step` as on_token(generation, token).
        keep_logits
            Keep what each token was sampled from.

        Returns
        -------
        Generation
            Its handle, which fills as `step` is called.

        Raises
        ------
        PromptTooLongError
            For a prompt that never fits.
        InvalidTokensError
            For token ids that are not (n,) integers from 0 to 2**31 - 1.
        InvalidNamespaceError
            For what is not a `Namespace`.
        """
        prompt = self._checked(as_token_ids(prompt_ids))
        at_least(1, max_new_tokens=max_new_tokens)
        check_namespace(namespace)
        generation = Generation(
            self,
            prompt,
            # The last token needs no slot: nothing is computed after it.
            min(max_new_tokens, self._max_length - len(prompt) + 1),
            namespace=namespace,
            eos_ids=self._eos_ids if eos_ids is None else _read_eos_ids(eos_ids),
            on_token=on_token,
            keep_logits=keep_logits,
        )
        self._schedule.waiting.append(generation)
        return generation

    def run(self) -> None:
        """`step` until nothing is left that can be computed."""
        while self.step():
            pass

    def step(self) -> bool:
        """Admit what fits, then compute a chunk of each prompt and one token of all the others.

        If the model raises, the generations of the step fail, all they held is given back, and it
        is raised. What `on_token` raises fails its generation and is raised when the step is done.

        Returns
        -------
        bool
            Whether anything was computed: False when all is done, and while what waits finds no
            room beside what others hold in the cache.
        """
        with self._lock:
            with self._undisturbed():
                step = self._schedule.next_step()
                if step is None:
                    return False
                logits, tokens = self._compute(step)
                self._fail_without_numbers(step, tokens)
                self._schedule.computed(step)
                sampled = [
                    (each.generation, token, row)
                    for each, token, row in zip(step.work, tokens, logits, strict=True)
                    if each.samples and not each.generation.is_done
                ]
                self._append(sampled)
            self._call_back([(generation, token) for generation, token, _ in sampled])
            return True

    def cancel(self, generation: Generation) -> None:
        """See `Generation.cancel`."""
        with self._lock:
            if self._is_undisturbed:
                self._to_cancel.append(generation)
            elif not generation.is_done:
                self._end(generation, "cancelled")

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """What is cancelled in a step by its own thread (by a signal's handler, which the lock lets
        in) is cancelled after it."""
        self._is_undisturbed = True
        try:
            yield
        finally:
            self._is_undisturbed = False
            while self._to_cancel:
                self.cancel(self._to_cancel.pop())

    def _compute(self, step: Step) -> tuple[Tensor, list[int]]:
        """Logits after each work of the step, and the likeliest tokens; -1 without numbers."""
        try:
            logits = self._paged.logits(step.token_ids, step.batch, step.logits_indices)
            tokens = _on_their_way(_likeliest(logits))
            # A GPU works while the host goes on: meanwhile the next step is planned.
            following = self._schedule.batch_after(step)
            if following is not None:
                self._paged.plan(following)
            # Errors of a GPU show here.
            return logits, tokens()
        except BaseException as error:
            for each in step.work:
                self._fail(each.generation, error)
            raise

    def _fail_without_numbers(self, step: Step, tokens: list[int]) -> None:
        """Fail those whose logits are no numbers, before the step's K/V is shared."""
        for each, token in zip(step.work, tokens, strict=True):
            if token < 0:
                error = ModelOutputError("logits must be numbers; the model gave NaN")
                self._fail(each.generation, error)

    def _append(self, sampled: list[tuple[Generation, int, Tensor]]) -> None:
        for generation, token, row in sampled:
            generation.append(token, row)
            if generation.is_done:
                self._schedule.remove(generation)

    def _call_back(self, sampled: list[tuple[Generation, int]]) -> None:
        errors: list[Exception] = []
        for generation, token in sampled:
            if generation.on_token is None or generation.finish_reason == "cancelled":
                continue
            try:
                generation.on_token(generation, token)
            except Exception as error:
                errors.append(error)
                self._fail(generation, error)
        if errors:
            raise errors[0]

    def _fail(self, generation: Generation, error: BaseException) -> None:
        generation.error = error
        if not generation.is_done:
            self._end(generation, "failed")

    def _end(self, generation: Generation, reason: FinishReason) -> None:
        # One that waits stays in line and is passed over when it would start.
        generation.finish_reason = reason
        if generation.is_running:
            self._schedule.remove(generation)

    def _checked(self, prompt: NDArray[np.int32]) -> NDArray[np.int32]:
        if not len(prompt):
            raise InvalidTokensError("prompt_ids must have at least one token; got none")
        at = int(prompt.argmax())
        if prompt[at] >= self._vocab_size:
            raise InvalidTokensError(
                f"prompt_ids must be 0 to {self._vocab_size - 1} for this model; "
                f"got {prompt[at]} at {at}",
                index=at,
                value=int(prompt[at]),
            )
        if len(prompt) > self._max_length:
            raise PromptTooLongError(
                f"the prompt must have at most {self._max_length} tokens, by pool, row and model; "
                f"got {len(prompt)}",
                length=len(prompt),
                most=self._max_length,
            )
        return prompt.copy()


def _likeliest(logits: Tensor) -> Tensor:
    """The token of the highest logit in each row; -1 where one of them is NaN."""
    highest, tokens = logits.max(-1)  # NaN counts as highest
    return tokens.masked_fill(highest.isnan(), -1)


def _on_their_way(tokens: Tensor) -> Callable[[], list[int]]:
    """Send `tokens` to the host; the result waits for them, and for nothing launched later."""
    if not tokens.is_cuda:
        return tokens.tolist
    copy = tokens.to("cpu", non_blocking=True)  # into pinned memory
    sent = torch.cuda.Event()  # type: ignore[no-untyped-call]
    # The copy is on the stream of the tokens' device, which need not be the present one.
    sent.record(torch.cuda.current_stream(tokens.device))

    def arrived() -> list[int]:
        sent.synchronize()
        return copy.tolist()

    return arrived


def _new_cache(
    num_slots: int | None, page_size: int, policy: str, max_requests: int
) -> PrefixCache:
    if num_slots is None:
        raise InvalidArgumentError("num_slots or cache must be given; got neither")
    return PrefixCache(num_slots, page_size=page_size, policy=policy, max_requests=max_requests)


def _pool_of(
    cache: PrefixCache, model: PreTrainedModel, dtype: torch.dtype | str | None
) -> TokenToKVPool:
    """The cache's KV pool, made for it if it has none yet."""
    if isinstance(cache.kv, TokenToKVPool):
        _check_same_shape(cache, cache.kv)
        if dtype is not None and as_kv_dtype(dtype) != cache.kv.dtype:
            raise InvalidArgumentError(
                f"kv_dtype must be {cache.kv.dtype}, of the KV pool that the cache has already; "
                f"got {dtype}",
                kv_dtype=str(dtype),
            )
        return cache.kv
    pool = pool_for(model, cache.num_slots, page_size=cache.page_size, dtype=dtype)
    cache.kv = pool
    return pool


def _check_same_shape(cache: PrefixCache, pool: TokenToKVPool) -> None:
    of_cache, of_pool = (cache.num_slots, cache.page_size), (pool.num_slots, pool.page_size)
    if of_cache != of_pool:
        raise InvalidArgumentError(
            f"the KV pool must have the cache's {of_cache[0]} slots in pages of {of_cache[1]}; "
            f"got {of_pool[0]} in pages of {of_pool[1]}",
            cache=of_cache,
            pool=of_pool,
        )


def _read_eos_ids(given: EosIds) -> frozenset[int]:
    """Raises InvalidTokensError for what is neither a token id nor a collection of them."""
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        ids: TokenIds = [int(given)]
    elif isinstance(given, Set):
        ids = list(given)
    elif isinstance(given, Tensor):
        ids = given.detach().cpu().numpy().reshape(-1)
    else:
        ids = given
    return frozenset(as_token_ids(ids, "eos_ids").tolist())


def _eos_ids(model: PreTrainedModel) -> frozenset[int]:
    config: Any = model.generation_config or model.config
    ids = config.eos_token_id
    if ids is None:
        return frozenset()
    return frozenset([ids] if isinstance(ids, int) else ids)
