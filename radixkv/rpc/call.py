"""A call under way at a server."""

from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from radixkv.errors import InvalidArgumentError
from radixkv.rpc.auth import ANYONE, Principal
from radixkv.rpc.rpcs import Rpc


@dataclass(slots=True)
class Call:
    """request_id: as soon as the request is read, if it has one."""

    rpc: Rpc[Any, Any]
    caller: Principal = ANYONE
    request_id: str = ""

    def read(self, data: bytes) -> Any:
        """The request; raises InvalidArgumentError for what is none."""
        try:
            request = self.rpc.request.FromString(data)
        except DecodeError:
            name = self.rpc.request.DESCRIPTOR.full_name
            raise InvalidArgumentError(f"the message is no {name}") from None
        self.request_id = getattr(request, "request_id", "")
        return request
