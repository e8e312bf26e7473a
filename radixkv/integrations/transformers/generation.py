"""One prompt and what is generated from it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from radixkv.cache.request import Request
from radixkv.tree import Namespace

FinishReason: TypeAlias = Literal["stop", "length", "cancelled", "failed"]
OnToken: TypeAlias = Callable[["Generation", int], None]


@dataclass(slots=True)
class GenerationNumbers:
    """Tokens and seconds of one generation.

    Attributes
    ----------
    prompt_tokens
        Tokens of the prompt.
    cached_tokens
        Of the prompt, found at the first admission.
    computed_tokens
        Run through the model before a next token could be sampled; together with cached_tokens this
        is the prompt, and more only where a retraction had it computed again.
    resumed_tokens
        Found again after retractions.
    retractions
        Times that it gave its slots back.
    time_to_first_token_s
        Seconds from `submit`; None before the first token.
    """

    prompt_tokens: int
    cached_tokens: int = 0
    computed_tokens: int = 0
    resumed_tokens: int = 0
    retractions: int = 0
    time_to_first_token_s: float | None = None


class Owner(Protocol):
    """What runs a generation."""

    def cancel(self, generation: "Generation") -> None:
        """See `Generation.cancel`."""


class Generation:
    """The handle that `Generator.submit` gives.

    Parameters
    ----------
    owner
        Its `Generator`.
    prompt
        (n,) int32.
    max_new_tokens
        Tokens to generate at most.
    namespace
        What must be equal besides the tokens.
    eos_ids
        Token ids that end it.
    on_token
        Called with each token.
    keep_logits
        Whether `logits` are kept.

    Attributes
    ----------
    tokens
        Generated so far.
    logits
        What each was sampled from, (vocabulary,) float32, if kept.
    finish_reason
        None while it waits or runs.
    error
        Why it failed.
    """

    def __init__(
        self,
        owner: Owner,
        prompt: NDArray[np.int32],
        max_new_tokens: int,
        *,
        namespace: Namespace,
        eos_ids: frozenset[int],
        on_token: OnToken | None,
        keep_logits: bool,
    ) -> None:
        self.prompt = prompt
        self.max_new_tokens = max_new_tokens
        self.namespace = namespace
        self.eos_ids = eos_ids
        self.on_token = on_token
        self.keep_logits = keep_logits
        self.tokens: list[int] = []
        self.logits: list[Tensor] = []
        self.numbers = GenerationNumbers(len(prompt))
        self.finish_reason: FinishReason | None = None
        self.error: BaseException | None = None
        self.request: Request | None = None
        # K/V of [0, computed) is there; what was known when it was admitted ends at prefill_end.
        self.computed = self.prefill_end = 0
        self._owner = owner
        self._submitted_at = time.perf_counter()

    @property
    def is_done(self) -> bool:
        """Whether no more tokens will come."""
        return self.finish_reason is not None

    @property
    def is_running(self) -> bool:
        """Whether it holds slots now."""
        return self.request is not None and self.request.state == "running"

    @property
    def is_prefilling(self) -> bool:
        """Whether it runs and its next token cannot be sampled before more is computed."""
        return self.is_running and self.computed < self.prefill_end

    @property
    def all_tokens(self) -> NDArray[np.int32]:
        """Prompt and generated tokens, (n,) int32."""
        return np.concatenate([self.prompt, np.array(self.tokens, np.int32)])

    def cancel(self) -> None:
        """Stop after the step in progress and free what it holds. Idempotent, from any thread."""
        self._owner.cancel(self)

    def start(self, request: Request) -> None:
        """It was admitted as `request`.

        Parameters
        ----------
        request
            Of the cache.
        """
        self.request = request
        self.computed, self.prefill_end = request.cached_len, request.length
        self.numbers.cached_tokens = request.cached_tokens
        self.numbers.resumed_tokens = request.resumed_tokens

    def append(self, token: int, logits: Tensor) -> None:
        """The next token and what it was sampled from; may finish the generation.

        Parameters
        ----------
        token
            Its id.
        logits
            (vocabulary,) float32.
        """
        if not self.tokens:
            self.numbers.time_to_first_token_s = time.perf_counter() - self._submitted_at
        self.tokens.append(token)
        if self.keep_logits:
            self.logits.append(logits.clone())
        if token in self.eos_ids:
            self.finish_reason = "stop"
        elif len(self.tokens) == self.max_new_tokens:
            self.finish_reason = "length"

    def __repr__(self) -> str:
        state = self.finish_reason or ("running" if self.is_running else "waiting")
        return f"<Generation {state} prompt={len(self.prompt)} generated={len(self.tokens)}>"
