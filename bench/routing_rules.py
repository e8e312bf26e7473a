"""The routing rules of other routers, retold from their documentation, over our exact index.

All but Dynamo's see the requests under way as their load; see `LOADS`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from radixkv.lab.logs.requests import LoggedRequest
from radixkv.router import RoutingPolicy
from radixkv.router.pick_input import FloatArray, PickInput, RoutingChoice, best

DYNAMO_BLOCK = 16


def _highest(asked: PickInput, scores: FloatArray) -> RoutingChoice:
    return RoutingChoice(best(scores, asked.loads, asked.last_picked), "")


@dataclass(frozen=True, slots=True)
class SGLangRule:
    """The best match where it is above 0.3 of the prompt, else the least load. The least load too
    where the gap of the loads is over 64 requests and the highest is over 1.5 x the lowest.
    """

    name: ClassVar[str] = "SGLang's"

    def choose(self, asked: PickInput) -> RoutingChoice:
        least, most = asked.loads.min(), asked.loads.max()
        is_uneven = most - least > 64 and most > 1.5 * least
        if is_uneven or asked.lengths.max() <= 0.3 * asked.prompt_length:
            return _highest(asked, -asked.loads)
        return _highest(asked, asked.lengths.astype(np.float64))


@dataclass(frozen=True, slots=True)
class LlmDRule:
    """3 x the matched share + 4 x the free queue, which is 1 at the emptiest worker and 0 at the
    fullest.
    """

    name: ClassVar[str] = "llm-d's"

    def choose(self, asked: PickInput) -> RoutingChoice:
        least, most = asked.loads.min(), asked.loads.max()
        free = (most - asked.loads) / max(most - least, 1e-9) if most > least else 1.0
        return _highest(asked, 3 * asked.lengths / asked.prompt_length + 4 * free)


@dataclass(frozen=True, slots=True)
class ProductionStackRule:
    """The matched share - (load - mean) / mean."""

    name: ClassVar[str] = "production-stack's"

    def choose(self, asked: PickInput) -> RoutingChoice:
        mean = max(asked.loads.mean(), 1e-9)
        return _highest(asked, asked.lengths / asked.prompt_length - (asked.loads - mean) / mean)


@dataclass(frozen=True, slots=True)
class DynamoRule:
    """The least uncached prefill + active blocks. Its loads are blocks of the prompts under way."""

    name: ClassVar[str] = "Dynamo's"

    def choose(self, asked: PickInput) -> RoutingChoice:
        uncached = (asked.prompt_length - asked.lengths) / DYNAMO_BLOCK
        return _highest(asked, -(uncached + asked.loads))


RULES: dict[str, type[RoutingPolicy]] = {
    rule.name: rule for rule in (SGLangRule, LlmDRule, ProductionStackRule, DynamoRule)
}
# What a request adds to its worker's load; 1 elsewhere.
LOADS: dict[str, Callable[[LoggedRequest], float]] = {
    DynamoRule.name: lambda request: request.length / DYNAMO_BLOCK
}
