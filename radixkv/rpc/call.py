"""A call under way at a server."""

from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from radixkv.errors import InvalidArgumentError
from radixkv.rpc.auth import ANYONE, Principal
from radixkv.rpc.method_table import Rpc


@dataclass(slots=True)
class Call:
    """Which RPC, and by whom.

    data, request_id: of the request, once it is read; `data` as it came, `request_id` "" without.
    """

    rpc: Rpc[Any, Any]
    caller: Principal = ANYONE
    data: bytes = b""
    request_id: str = ""

    def read(self, data: bytes) -> Any:
        """The request of `data`; raises InvalidArgumentError where it is not one."""
        try:
            request = self.rpc.request.FromString(data)
        except DecodeError:
            name = self.rpc.request.DESCRIPTOR.full_name
            raise InvalidArgumentError(f"the message must be a {name}; got other bytes") from None
        self.data = data
        self.request_id = getattr(request, "request_id", "")
        return request
