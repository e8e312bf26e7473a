"""The gRPC service: `CacheServer` answers for a cache, `Client` and `AsyncClient` ask.

Both stand on what `radixkv.rpc` has for every server; `event_codec.py` is for both.
"""

from radixkv.rpc.codec import Prompt
from radixkv.rpc.tls import Tls
from radixkv.service.client.calls import Match, MatchReply, ServerInfo, ServerStats
from radixkv.service.client.clients import AsyncClient, Client
from radixkv.service.client.lease import AsyncLease, Lease
from radixkv.service.client.lease_calls import (
    Allocated,
    InsertCall,
    InsertReply,
    LeaseHoldings,
    LeaseInfo,
    LeasePage,
)
from radixkv.service.client.router_calls import Chat, RoutedPick, RoutedWorker, Text
from radixkv.service.client.router_clients import AsyncRouterClient, RouterClient
from radixkv.service.client.watch import AsyncWatch, Watch
from radixkv.service.server.cache_server import CacheServer

__all__ = [
    "Allocated",
    "AsyncClient",
    "AsyncLease",
    "AsyncRouterClient",
    "AsyncWatch",
    "CacheServer",
    "Chat",
    "Client",
    "InsertCall",
    "InsertReply",
    "Lease",
    "LeaseHoldings",
    "LeaseInfo",
    "LeasePage",
    "Match",
    "MatchReply",
    "Prompt",
    "RoutedPick",
    "RoutedWorker",
    "RouterClient",
    "ServerInfo",
    "ServerStats",
    "Text",
    "Tls",
    "Watch",
]
