"""Policies that ignore what is cached."""

from dataclasses import dataclass
from typing import ClassVar

from radixkv.router.pick_input import PickInput, RoutingChoice, best


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Each worker in turn."""

    name: ClassVar[str] = "round-robin"

    def choose(self, asked: PickInput) -> RoutingChoice:
        """The worker that was not picked for longest.

        Parameters
        ----------
        asked
            The prompt, and the workers that may get it.

        Returns
        -------
        RoutingChoice
            The worker, and why.
        """
        return RoutingChoice(int(asked.last_picked.argmin()), "next in turn")


@dataclass(frozen=True, slots=True)
class LeastLoad:
    """The least loaded worker; of equal ones the one not picked for longest."""

    name: ClassVar[str] = "least-load"

    def choose(self, asked: PickInput) -> RoutingChoice:
        """The least loaded worker.

        Parameters
        ----------
        asked
            The prompt, and the workers that may get it.

        Returns
        -------
        RoutingChoice
            The worker, and why.
        """
        return RoutingChoice(best(-asked.loads, asked.loads, asked.last_picked), "least loaded")
