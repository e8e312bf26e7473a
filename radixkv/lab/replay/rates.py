"""How long the steps of an engine take, from what was measured on a card."""

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path

from radixkv.errors import InvalidArgumentError

_CARDS = Path(__file__).with_name("cards")


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds of a step are the sum of these, and one that computes prompts takes `launch_ms`.

    step_ms: of any step. prefill_us: of each prompt token that it computes. pair_ns: of each of
    those tokens and each before it in its prompt, which it attends to. decode_us: of each request
    that it gives a token. kv_ns: of each token of K/V that those requests have.
    launch_ms: the least of a step that computes prompts, whose kernels the CPU launches one by one;
    steps that only decode are CUDA graphs. chunk: the most prompt tokens that a step computes.
    """

    step_ms: float
    prefill_us: float
    decode_us: float = 0.0
    kv_ns: float = 0.0
    pair_ns: float = 0.0
    launch_ms: float = 0.0
    chunk: int = 8192

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not math.isfinite(value) or value < 0:
                raise InvalidArgumentError(
                    f"rate {each.name} must be a number of at least 0; got {value!r}",
                    rate=each.name,
                )
        if self.chunk < 1 or self.step_ms <= 0:
            raise InvalidArgumentError(
                f"rates chunk and step_ms must be above 0; got {self.chunk} and {self.step_ms}"
            )

    def step_s(self, prefill: int, pairs: int, decoding: int, kv_tokens: int) -> float:
        """Of one step."""
        computing = 1e-6 * self.prefill_us * prefill + 1e-9 * self.pair_ns * pairs
        seconds = self.decode_s(1, decoding, kv_tokens) + computing
        return max(seconds, 1e-3 * self.launch_ms) if prefill else seconds

    def decode_s(self, steps: int, decoding: int, kv_tokens: int) -> float:
        """Of so many steps with the same requests, whose K/V grows by a token each a step."""
        grown = decoding * steps * (steps - 1) / 2
        each = 1e-3 * self.step_ms + 1e-6 * self.decode_us * decoding
        return steps * each + 1e-9 * self.kv_ns * (kv_tokens * steps + grown)

    def steps_within(self, seconds: float, decoding: int, kv_tokens: int) -> int:
        """The fewest decode steps that take so long, at least one."""
        squared = 0.5e-9 * self.kv_ns * decoding
        once = self.decode_s(1, decoding, kv_tokens) - squared
        if squared:
            found = (math.sqrt(once * once + 4 * squared * max(seconds, 0.0)) - once) / 2 / squared
        else:
            found = max(seconds, 0.0) / once
        steps = max(1, math.ceil(found) - 1)
        # The root is rounded; the sum decides.
        while self.decode_s(steps, decoding, kv_tokens) < seconds:
            steps += 1
        return steps


def read_rates(path: Path) -> Rates:
    """Of a JSON file with the fields of `Rates`. Raises InvalidArgumentError."""
    known = ", ".join(each.name for each in fields(Rates))
    try:
        return Rates(**json.loads(path.read_text("utf-8-sig")))
    except (OSError, ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f"rates must be a JSON object with {known}; {path}: {error}", path=str(path)
        ) from error


def rates_of(card: str) -> Rates:
    """Those measured on a card, as `cards/` beside this file has them. InvalidArgumentError."""
    known = {path.stem: path for path in _CARDS.glob("*.json")}
    if card not in known:
        raise InvalidArgumentError(
            f"card must be one of {', '.join(sorted(known))}; got {card!r}; others by --rates FILE",
            card=card,
        )
    return read_rates(known[card])
