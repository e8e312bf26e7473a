"""The RPCs that are served so far, for both sides."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from radixkv.service.limits import ADMIN_DEADLINE_S, DATA_DEADLINE_S
from radixkv.v1 import info_pb2, prefix_cache_pb2

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True)
class Rpc(Generic[Request, Response]):
    """One RPC: where it is and what it takes and gives."""

    service: str
    name: str
    request: type[Request]
    response: type[Response]
    deadline_s: float  # of clients that name none

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


PREFIX_CACHE_SERVICE = "radixkv.v1.PrefixCacheService"
INFO_SERVICE = "radixkv.v1.InfoService"

MATCH_PREFIX = Rpc(
    PREFIX_CACHE_SERVICE,
    "MatchPrefix",
    prefix_cache_pb2.MatchPrefixRequest,
    prefix_cache_pb2.MatchPrefixResponse,
    DATA_DEADLINE_S,
)
GET_SERVER_INFO = Rpc(
    INFO_SERVICE,
    "GetServerInfo",
    info_pb2.GetServerInfoRequest,
    info_pb2.GetServerInfoResponse,
    ADMIN_DEADLINE_S,
)
GET_STATS = Rpc(
    INFO_SERVICE,
    "GetStats",
    info_pb2.GetStatsRequest,
    info_pb2.GetStatsResponse,
    ADMIN_DEADLINE_S,
)
