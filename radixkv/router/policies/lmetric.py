"""LMetric: tokens to compute times requests under way, without anything to tune."""

from dataclasses import dataclass
from typing import ClassVar

from radixkv.router.pick_input import PickInput, RoutingChoice, best


@dataclass(frozen=True, slots=True)
class LMetric:
    """The worker with the least (prompt - matched tokens) x (requests under way + 1).

    The first factor is what the prompt makes the worker compute, the second how large its batch is
    then. A worker that holds the whole prompt scores 0, whatever its load; of equal scores the
    least loaded worker gets it, then the one not picked for longest.
    """

    name: ClassVar[str] = "lmetric"

    def choose(self, asked: PickInput) -> RoutingChoice:
        products = (asked.prompt_length - asked.lengths) * (asked.loads + 1.0)
        at = best(-products, asked.loads, asked.last_picked)
        return RoutingChoice(at, "least new tokens x requests")
