"""The gRPC service: `CacheServer` answers for a cache, `Client` and `AsyncClient` ask.

On what `radixkv.rpc` has for every server. The server: `handlers/`, `leases.py`, `answers.py` (of
requests that are repeated), `watching.py`. The client: `calls.py`, `lease_calls.py`,
`admin_calls.py` (what can be asked), `methods.py`, `coalesce.py`, `lease.py`, `watch.py`. Both:
`event_codec.py`.
"""

from radixkv.rpc.codec import Prompt
from radixkv.rpc.tls import Tls
from radixkv.service.calls import Match, MatchReply, ServerInfo, ServerStats
from radixkv.service.client import AsyncClient, Client
from radixkv.service.lease import AsyncLease, Lease
from radixkv.service.lease_calls import Allocated, Insert, Inserted, LeaseInfo, LeasePage
from radixkv.service.server import CacheServer
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
    "LeasePage",
    "Match",
    "MatchReply",
    "Prompt",
    "ServerInfo",
    "ServerStats",
    "Tls",
    "Watch",
]
