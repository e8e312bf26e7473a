"""Routing policies: which worker gets a prompt, by what each holds of it and how busy each is.

To add one: a file here with a class that has the `name` and `choose` of `RoutingPolicy`, and a line
in `POLICIES`.
"""

from typing import Any

from radixkv.errors import InvalidArgumentError
from radixkv.router.policies.cache_aware import CacheAware
from radixkv.router.policies.consistent_hashing import ConsistentHashing
from radixkv.router.policies.lmetric import LMetric
from radixkv.router.policies.load_only import LeastLoad, RoundRobin
from radixkv.router.policies.policy import RoutingPolicy

POLICIES: dict[str, type[RoutingPolicy]] = {
    "cache-aware": CacheAware,
    "consistent-hashing": ConsistentHashing,
    "least-load": LeastLoad,
    "lmetric": LMetric,
    "round-robin": RoundRobin,
}


def new_policy(name: str, **options: Any) -> RoutingPolicy:
    """The policy of that name.

    Parameters
    ----------
    name
        A name in `POLICIES`.
    **options
        Fields of that policy.

    Returns
    -------
    RoutingPolicy
        With those options.

    Raises
    ------
    InvalidArgumentError
        For an unknown name or option.
    """
    if name not in POLICIES:
        raise InvalidArgumentError(
            f"policy must be one of {', '.join(sorted(POLICIES))}; got {name!r}", policy=name
        )
    try:
        return POLICIES[name](**options)
    except TypeError as error:
        raise InvalidArgumentError(
            f"options must be those of {name}; got others: {error}", policy=name
        ) from error
