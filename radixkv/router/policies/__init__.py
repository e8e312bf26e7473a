"""Routing policies: which worker gets a prompt, by what each holds of it and how busy each is.

To add one: a file here with a class that has the `name` and `choose` of `RoutingPolicy`, and a line
in `POLICIES`.
"""

from importlib import import_module
from typing import Any, cast

from radixkv.errors import InvalidArgumentError
from radixkv.router.policies.policy import RoutingPolicy

# By name: the file here and the class in it.
POLICIES = {
    "cache-aware": "cache_aware:CacheAware",
    "consistent-hashing": "consistent_hashing:ConsistentHashing",
    "least-load": "load_only:LeastLoad",
    "lmetric": "lmetric:LMetric",
    "round-robin": "load_only:RoundRobin",
}


def new_policy(name: str, **options: Any) -> RoutingPolicy:
    """The policy of that name. Raises InvalidArgumentError for an unknown name or option."""
    if name not in POLICIES:
        raise InvalidArgumentError(
            f"policy must be one of {', '.join(sorted(POLICIES))}; got {name!r}", policy=name
        )
    module, class_name = POLICIES[name].split(":")
    policy = getattr(import_module(f"{__name__}.{module}"), class_name)
    try:
        return cast(RoutingPolicy, policy(**options))
    except TypeError as error:
        raise InvalidArgumentError(f"policy {name}: {error}", policy=name) from error
