"""The router: which worker holds how much of a prompt, and which one gets it.

`PrefixIndex` mirrors the workers' caches, `policies.py` decides, `Router` does both. `server.py`
answers over gRPC, which the rest does without.
"""

from radixkv.router.feeding import Source, Stream
from radixkv.router.index import PrefixIndex, WorkerView
from radixkv.router.policies import (
    POLICIES,
    CacheAware,
    ConsistentHashing,
    LeastLoad,
    Policy,
    RoundRobin,
    new_policy,
    register,
)
from radixkv.router.question import Choice, Question
from radixkv.router.router import Pick, Router, WorkerStatus

__all__ = [
    "POLICIES",
    "CacheAware",
    "Choice",
    "ConsistentHashing",
    "LeastLoad",
    "Pick",
    "Policy",
    "PrefixIndex",
    "Question",
    "RoundRobin",
    "Router",
    "Source",
    "Stream",
    "WorkerStatus",
    "WorkerView",
    "new_policy",
    "register",
]
