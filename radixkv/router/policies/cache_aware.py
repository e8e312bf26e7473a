"""Where a prompt delays requests least: this one, and those behind it."""

from dataclasses import dataclass, field
from typing import ClassVar

from radixkv.router.cheapest import CheapestWorker
from radixkv.router.factory import new_cheapest
from radixkv.router.pick_input import PickInput, RoutingChoice


@dataclass(frozen=True, slots=True)
class CacheAware:
    """The worker on which the prompt costs least, in tokens to wait for.

    It waits for what is pending at the worker and for what the worker does not hold of it. The
    latter also delays whatever comes behind it: about as many requests as a worker has under way in
    the mean, and two (`most_delayed`) at most, since an engine computes many side by side. So at
    low load a prompt goes where it is answered first, and the busier the workers are, the more a
    match counts.

    What a worker holds counts less by 8 % (`balance`) of the tokens that it computed recently
    beyond the worker with the least: a prompt is computed again elsewhere when its holder is ahead
    by twelve times what the match saves. What all workers hold alike draws a prompt to none.

    Dynamo's router also adds up what is to be computed and what is under way, at the same price;
    `lmetric` multiplies them. Preble's (E2) weighs a match against the work of some minutes, which
    it estimates; here workers report it.

    Attributes
    ----------
    balance
        Share of the recent load that counts.
    most_delayed
        Requests behind it that a prompt delays at most.
    core
        "native" or "python"; None: as `RADIXKV_CORE` says, else the native one where it is built.
    """

    name: ClassVar[str] = "cache-aware"
    balance: float = 0.08
    most_delayed: float = 2.0
    core: str | None = None
    _cheapest: CheapestWorker = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_cheapest", new_cheapest(self.core))

    def choose(self, asked: PickInput) -> RoutingChoice:
        """The worker where the prompt is answered first, for what it costs the others.

        Parameters
        ----------
        asked
            The prompt, and the workers that may get it.

        Returns
        -------
        RoutingChoice
            The worker, and why.
        """
        return self._cheapest(asked, self.balance, self.most_delayed)
