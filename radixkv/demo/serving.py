"""One turn of all chats, answered by the same engine with prefix reuse and without."""

from dataclasses import dataclass
from typing import Any

from radixkv.arrays import Int32Array
from radixkv.integrations.transformers import Generation, Generator
from radixkv.service import Client

MAX_NEW_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Served:
    """One prompt, how much of it the service held beforehand, and its answers both ways."""

    held: int  # tokens of the prompt that the service had cached before
    with_cache: Generation
    without: Generation

    @property
    def is_equal(self) -> bool:
        return self.with_cache.tokens == self.without.tokens


class BothWays:
    """One model behind two engines: `cached` reuses prefixes, `plain` computes every prompt."""

    def __init__(self, model: Any, num_slots: int) -> None:
        self.cached = Generator(model, num_slots=num_slots)
        self.plain = Generator(model, num_slots=num_slots, reuse=False)

    def serve(self, prompts: list[Int32Array], client: Client) -> list[Served]:
        """Match all prompts at the service, then answer all at once, each way in turn."""
        held = client.match(prompts, probe=True).lengths
        with_cache = _answer(self.cached, prompts)
        without = _answer(self.plain, prompts)
        return [Served(*each) for each in zip(held, with_cache, without, strict=True)]


def _answer(engine: Generator, prompts: list[Int32Array]) -> list[Generation]:
    generations = [engine.submit(prompt, MAX_NEW_TOKENS) for prompt in prompts]
    engine.run()
    return generations
