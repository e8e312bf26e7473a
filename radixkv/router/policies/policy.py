"""The contract of a routing policy."""

from typing import ClassVar, Protocol

from radixkv.router.pick_input import PickInput, RoutingChoice


class RoutingPolicy(Protocol):
    """Chooses a worker for each prompt. Called for one prompt at a time, under the router's lock.

    Attributes
    ----------
    name
        What `Router` and `radixkv route --policy` know it by.
    """

    name: ClassVar[str]

    def choose(self, asked: PickInput) -> RoutingChoice:
        """The worker that gets the prompt; `asked` has at least one, and is not changed.

        What it raises ends the pick, and nothing was picked.

        Parameters
        ----------
        asked
            The prompt, and the workers that may get it.

        Returns
        -------
        RoutingChoice
            The worker, and why.
        """
        ...
