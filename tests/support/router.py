"""RouterService as a client without our library calls it."""

from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from radixkv.v1 import router_pb2
from radixkv.v1.types_pb2 import TokenSequence

DEADLINE_S = 60


def packed(*ids):
    return TokenSequence(packed=np.array(ids, "<i4").tobytes())


def pick(stub, *sequences, **how):
    request = router_pb2.PickRequest(sequences=sequences, **how)
    return stub.Pick(request, timeout=DEADLINE_S).picks


def refusal(call: Callable[[], object]) -> tuple[Any, str, dict[str, str]]:
    """The code, reason and details of the error of gRPC that the call ends with."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    info = error_details_pb2.ErrorInfo()
    error: Any = caught.value
    status = rpc_status.from_call(error)
    assert status is not None
    assert status.details[0].Unpack(info)
    return error.code(), info.reason, dict(info.metadata)
