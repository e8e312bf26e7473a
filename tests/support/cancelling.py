"""Requests of a Generator that are cancelled at random moments and sent again at once."""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from radixkv.integrations.transformers.generation import Generation
from radixkv.integrations.transformers.generator import Generator

Alone = Callable[[Sequence[int], int], list[int]]


@dataclass
class Sent:
    """One request. is_stranger: it is never cancelled."""

    prompt: list[int]
    generation: Generation
    is_stranger: bool


class Cancelling:
    """Some requests that are never cancelled beside some that always are, over few prompts.

    alone: what the model generates by itself. strangers: requests that ended, each compared with
    that. rounds: cancels, each followed by the same request again.
    """

    def __init__(self, generator: Generator, alone: Alone, rng: random.Random) -> None:
        self.strangers = self.rounds = 0
        self._generator, self._alone, self._rng = generator, alone, rng
        shared = [rng.randrange(90) for _ in range(12)]
        self._prompts = [
            shared[: rng.randint(1, 12)] + [rng.randrange(90) for _ in range(rng.randint(1, 12))]
            for _ in range(8)
        ]

    def run(self, rounds: int) -> None:
        """That many cancels and more; then what is left runs to its end."""
        sent = [self._send(at < 3) for at in range(6)]
        while self.rounds < rounds:
            self._disturb(sent)
            self._generator.step()
            sent = [self._again(each) for each in sent]
        self._generator.run()
        for each in sent:
            self._check(each)

    def _send(self, is_stranger: bool, prompt: list[int] | None = None) -> Sent:
        prompt = prompt or self._rng.choice(self._prompts)
        generation = self._generator.submit(prompt, self._rng.randint(1, 6))
        return Sent(prompt, generation, is_stranger)

    def _disturb(self, sent: list[Sent]) -> None:
        """Cancel what is not a stranger's, before the step or from a thread in the middle of it."""
        for at, each in enumerate(sent):
            if each.is_stranger or self._rng.random() < 0.3:
                continue
            if self._rng.random() < 0.2:
                pause_s = self._rng.random() * 0.004
                threading.Timer(pause_s, each.generation.cancel).start()
            else:
                each.generation.cancel()
            self.rounds += 1
            sent[at] = self._send(False, each.prompt)

    def _again(self, each: Sent) -> Sent:
        if not each.generation.is_done:
            return each
        self._check(each)
        return self._send(each.is_stranger)

    def _check(self, each: Sent) -> None:
        """It has the tokens that it has alone."""
        expected = self._alone(each.prompt, each.generation.max_new_tokens)
        assert each.generation.tokens == expected, each
        assert each.generation.finish_reason == "length"
        self.strangers += each.is_stranger
