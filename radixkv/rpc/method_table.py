"""Every RPC, for both sides: its path, its messages, its limits, the roles that may call it."""

from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

from google.protobuf.message import Message

from radixkv.rpc.limits import ADMIN_DEADLINE_S, DATA_DEADLINE_S, CallKind
from radixkv.v1 import admin_pb2, info_pb2, lease_pb2, prefix_cache_pb2, router_pb2, watch_pb2

RequestMessage = TypeVar("RequestMessage", bound=Message)
ResponseMessage = TypeVar("ResponseMessage", bound=Message)
Role: TypeAlias = Literal["data", "watch", "admin"]


@dataclass(frozen=True, slots=True)
class Rpc(Generic[RequestMessage, ResponseMessage]):
    """One RPC.

    kind: which limit on concurrent calls it counts against, and its deadline. roles: who may call
    it, besides admin. is_bounded: whether the work is at most in proportion to the request, so that
    a small one may run in the server's event loop. is_walk: whether it walks everything and takes
    turns with others by itself: it runs in a thread beside the writer.
    """

    service: str
    name: str
    request: type[RequestMessage]
    response: type[ResponseMessage]
    kind: CallKind = "data"
    roles: tuple[Role, ...] = ("data",)
    is_bounded: bool = False
    is_walk: bool = False

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"

    @property
    def deadline_s(self) -> float | None:
        """The deadline that clients set by default."""
        deadlines = {"data": DATA_DEADLINE_S, "admin": ADMIN_DEADLINE_S, "stream": None}
        return deadlines[self.kind]


PREFIX_CACHE_SERVICE = "radixkv.v1.PrefixCacheService"
LEASE_SERVICE = "radixkv.v1.LeaseService"
WATCH_SERVICE = "radixkv.v1.WatchService"
INFO_SERVICE = "radixkv.v1.InfoService"
ADMIN_SERVICE = "radixkv.v1.AdminService"
ROUTER_SERVICE = "radixkv.v1.RouterService"
# What a cache's server serves; a router's serves ROUTER_SERVICE alone.
SERVICES = (PREFIX_CACHE_SERVICE, LEASE_SERVICE, WATCH_SERVICE, INFO_SERVICE, ADMIN_SERVICE)

MATCH_PREFIX = Rpc(
    PREFIX_CACHE_SERVICE,
    "MatchPrefix",
    prefix_cache_pb2.MatchPrefixRequest,
    prefix_cache_pb2.MatchPrefixResponse,
    is_bounded=True,
)
ALLOCATE_SLOTS = Rpc(
    PREFIX_CACHE_SERVICE,
    "AllocateSlots",
    prefix_cache_pb2.AllocateSlotsRequest,
    prefix_cache_pb2.AllocateSlotsResponse,
)
FREE_SLOTS = Rpc(
    PREFIX_CACHE_SERVICE,
    "FreeSlots",
    prefix_cache_pb2.FreeSlotsRequest,
    prefix_cache_pb2.FreeSlotsResponse,
    is_bounded=True,
)
INSERT_PREFIX = Rpc(
    PREFIX_CACHE_SERVICE,
    "InsertPrefix",
    prefix_cache_pb2.InsertPrefixRequest,
    prefix_cache_pb2.InsertPrefixResponse,
)
RELEASE_PINS = Rpc(
    PREFIX_CACHE_SERVICE,
    "ReleasePins",
    prefix_cache_pb2.ReleasePinsRequest,
    prefix_cache_pb2.ReleasePinsResponse,
    is_bounded=True,
)
EVICT_PREFIXES = Rpc(
    PREFIX_CACHE_SERVICE,
    "EvictPrefixes",
    prefix_cache_pb2.EvictPrefixesRequest,
    prefix_cache_pb2.EvictPrefixesResponse,
    "admin",
    (),
)
GRANT_LEASE = Rpc(
    LEASE_SERVICE, "GrantLease", lease_pb2.GrantLeaseRequest, lease_pb2.GrantLeaseResponse
)
KEEP_LEASE_ALIVE = Rpc(
    LEASE_SERVICE,
    "KeepLeaseAlive",
    lease_pb2.KeepLeaseAliveRequest,
    lease_pb2.KeepLeaseAliveResponse,
    "stream",
)
REVOKE_LEASE = Rpc(
    LEASE_SERVICE, "RevokeLease", lease_pb2.RevokeLeaseRequest, lease_pb2.RevokeLeaseResponse
)
GET_LEASE = Rpc(LEASE_SERVICE, "GetLease", lease_pb2.GetLeaseRequest, lease_pb2.GetLeaseResponse)
LIST_LEASES = Rpc(
    LEASE_SERVICE,
    "ListLeases",
    lease_pb2.ListLeasesRequest,
    lease_pb2.ListLeasesResponse,
    "admin",
)
WATCH = Rpc(
    WATCH_SERVICE, "Watch", watch_pb2.WatchRequest, watch_pb2.WatchResponse, "stream", ("watch",)
)
GET_SERVER_INFO = Rpc(
    INFO_SERVICE,
    "GetServerInfo",
    info_pb2.GetServerInfoRequest,
    info_pb2.GetServerInfoResponse,
    "admin",
    ("data", "watch"),
)
GET_STATS = Rpc(
    INFO_SERVICE,
    "GetStats",
    info_pb2.GetStatsRequest,
    info_pb2.GetStatsResponse,
    "admin",
    ("data", "watch"),
)
CLEAR_CACHE = Rpc(
    ADMIN_SERVICE,
    "ClearCache",
    admin_pb2.ClearCacheRequest,
    admin_pb2.ClearCacheResponse,
    "admin",
    (),
)
CHECK_INTEGRITY = Rpc(
    ADMIN_SERVICE,
    "CheckIntegrity",
    admin_pb2.CheckIntegrityRequest,
    admin_pb2.CheckIntegrityResponse,
    "admin",
    (),
    is_walk=True,
)
DUMP_TREE = Rpc(
    ADMIN_SERVICE,
    "DumpTree",
    admin_pb2.DumpTreeRequest,
    admin_pb2.DumpTreeResponse,
    "stream",
    (),
)
PICK = Rpc(ROUTER_SERVICE, "Pick", router_pb2.PickRequest, router_pb2.PickResponse, is_bounded=True)
LOOKUP = Rpc(
    ROUTER_SERVICE, "Lookup", router_pb2.LookupRequest, router_pb2.LookupResponse, is_bounded=True
)
LIST_WORKERS = Rpc(
    ROUTER_SERVICE,
    "ListWorkers",
    router_pb2.ListWorkersRequest,
    router_pb2.ListWorkersResponse,
    "admin",
    ("data", "watch"),
)
ADD_WORKER = Rpc(
    ROUTER_SERVICE,
    "AddWorker",
    router_pb2.AddWorkerRequest,
    router_pb2.AddWorkerResponse,
    "admin",
    (),
)
REMOVE_WORKER = Rpc(
    ROUTER_SERVICE,
    "RemoveWorker",
    router_pb2.RemoveWorkerRequest,
    router_pb2.RemoveWorkerResponse,
    "admin",
    (),
)
