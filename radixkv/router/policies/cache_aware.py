"""Where a prompt costs least: what is missing of it there, and how busy the worker is."""

from dataclasses import dataclass, field
from typing import ClassVar

from radixkv.router.cheapest import CheapestWorker
from radixkv.router.factory import new_cheapest
from radixkv.router.pick_input import PickInput, RoutingChoice


@dataclass(frozen=True, slots=True)
class CacheAware:
    """The worker on which the prompt costs least, in tokens.

    A worker's cost is the tokens that it does not hold; `waiting` of the tokens that its requests
    under way still cost, and `share` of the prompt for each of them; and a tenth (`balance`) of its
    recent load beyond that of the worker with the least, a whole prompt at most. So a prompt that
    no worker holds goes to the one with the least recent load, and a cached prompt is computed
    again elsewhere when its holder is ahead by ten times what the match saves.

    A token that waits counts for less than one to compute: it is gone soon, and the prompt's stay
    where they are computed. Dynamo's router also adds up what is to be computed and what is under
    way. Preble's (E2) weighs a match against the work of some minutes, which it estimates; here
    workers report it.

    Attributes
    ----------
    waiting
        Tokens that one token under way counts as.
    share
        Of the prompt, for each request under way.
    balance
        Share of the recent load that counts.
    core
        "native" or "python"; None: as `RADIXKV_CORE` says, else the native one where it is built.
    """

    name: ClassVar[str] = "cache-aware"
    waiting: float = 0.3
    share: float = 1 / 64
    balance: float = 0.1
    core: str | None = None
    _cheapest: CheapestWorker = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_cheapest", new_cheapest(self.core))

    def choose(self, asked: PickInput) -> RoutingChoice:
        """The worker on which the prompt costs least.

        Parameters
        ----------
        asked
            The prompt, and the workers that may get it.

        Returns
        -------
        RoutingChoice
            The worker, and why.
        """
        return self._cheapest(asked, self.waiting, self.share, self.balance)
