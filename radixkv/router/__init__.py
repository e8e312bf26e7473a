"""The router: how much of a prompt each worker holds, and which worker gets it.

`PrefixIndex` mirrors the workers' caches, a policy of `policies/` chooses, `Router` does both.
`server.py` serves it over gRPC, which the rest does not need.
"""

from radixkv.router.feeding import Source, Stream
from radixkv.router.index import PrefixIndex, WorkerView
from radixkv.router.pick_input import PickInput, RoutingChoice
from radixkv.router.policies import POLICIES, new_policy
from radixkv.router.policies.cache_aware import CacheAware
from radixkv.router.policies.consistent_hashing import ConsistentHashing
from radixkv.router.policies.load_only import LeastLoad, RoundRobin
from radixkv.router.policies.policy import RoutingPolicy
from radixkv.router.router import Pick, Router, WorkerStatus

__all__ = [
    "POLICIES",
    "CacheAware",
    "ConsistentHashing",
    "LeastLoad",
    "Pick",
    "PickInput",
    "PrefixIndex",
    "RoundRobin",
    "Router",
    "RoutingChoice",
    "RoutingPolicy",
    "Source",
    "Stream",
    "WorkerStatus",
    "WorkerView",
    "new_policy",
]
