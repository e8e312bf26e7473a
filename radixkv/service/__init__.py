"""The gRPC service: `CacheServer` answers for a cache, `Client` and `AsyncClient` ask.

`limits.py` says what both sides agree on, `status.py` how errors travel, `calls.py` what clients
can ask.
"""

from radixkv.service.calls import Match, MatchReply, ServerInfo, ServerStats
from radixkv.service.client import AsyncClient, Client
from radixkv.service.codec import Prompt
from radixkv.service.lease import AsyncLease, Lease
from radixkv.service.lease_calls import Allocated, Insert, Inserted, LeaseInfo
from radixkv.service.server import CacheServer
from radixkv.service.tls import Tls
from radixkv.service.watch import AsyncWatch, Watch

__all__ = [
    "Allocated",
    "AsyncClient",
    "AsyncLease",
    "AsyncWatch",
    "CacheServer",
    "Client",
    "Insert",
    "Inserted",
    "Lease",
    "LeaseInfo",
    "Match",
    "MatchReply",
    "Prompt",
    "ServerInfo",
    "ServerStats",
    "Tls",
    "Watch",
]
