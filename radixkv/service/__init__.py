"""The gRPC service: `CacheServer` answers for a cache, `Client` and `AsyncClient` ask.

Both sides: `limits.py` (what they agree on), `rpcs.py`, `codec.py`, `event_codec.py`, `status.py`
(how errors travel), `tls.py`. The server: `front.py` (who may call, and how errors are told),
`handlers/`, `leases.py`, `answers.py`, `watching.py`, `auth.py`, `metrics.py`, `observer.py`. The
client: `calls.py`, `lease_calls.py`, `admin_calls.py` (what can be asked), `coalesce.py`,
`lease.py`, `watch.py`.
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
