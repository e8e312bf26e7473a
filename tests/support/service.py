import threading
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from prometheus_client.parser import text_string_to_metric_families

from radixkv import DEFAULT, Namespace, PrefixCache
from radixkv.service import Client, Tls

if TYPE_CHECKING:  # it brings cryptography, whose leaks the sanitized tests would report
    import trustme


def hold(cache: PrefixCache, token_ids, namespace: Namespace = DEFAULT, **how):
    """Cache a prompt as an engine does; its slots."""
    request = cache.admit(token_ids, namespace, **how)
    assert request is not None
    cache.publish(request, request.length)
    slots = request.slots.tolist()
    cache.finish(request, up_to=request.length)
    return slots


def connect(address: str) -> Client:
    """A client that waits out a busy machine."""
    return Client(address, timeout_s=60)


class BusyLock:
    """A lock that is never free at once, as when an engine takes it over and over."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.release = self._lock.release

    def acquire(self, blocking: bool = True) -> bool:
        return blocking and self._lock.acquire()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SlowCache(PrefixCache):  # type: ignore[misc]
    """A cache whose matches wait, inside, until they are let go."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.transactions.lock = BusyLock()  # type: ignore[assignment]
        self.is_inside, self.go = threading.Event(), threading.Event()

    def match_lengths(self, *args, **how):
        self.is_inside.set()
        assert self.go.wait(timeout=60)
        return super().match_lengths(*args, **how)


def refusal(call):
    """The error of gRPC that the call ends with."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


TOKENS = """
[[token]]
name = "engine-1"
role = "data"
token = "data-token"

[[token]]
name = "engine-2"
role = "data"
token = "other-data-token"

[[token]]
name = "tenant-a"
role = "data"
token = "a-token"
salt = "a"

[[token]]
name = "router"
role = "watch"
token = "watch-token"

[[token]]
name = "operator"
role = "admin"
token = "admin-token"
"""
DETAILS = (
    error_details_pb2.BadRequest,
    error_details_pb2.PreconditionFailure,
    error_details_pb2.ResourceInfo,
    error_details_pb2.RetryInfo,
    error_details_pb2.DebugInfo,
)


def details(error) -> tuple[error_details_pb2.ErrorInfo, Any]:
    """The ErrorInfo of a refused call, and the other detail, if there is one."""
    info = error_details_pb2.ErrorInfo()
    status = rpc_status.from_call(error)
    assert status is not None
    assert status.message == error.details()
    found_info, *rest = status.details
    assert found_info.Unpack(info)
    assert info.domain == "radixkv"
    if not rest:
        return info, None
    (kind,) = [kind for kind in DETAILS if rest[0].Is(kind.DESCRIPTOR)]
    beside = kind()
    rest[0].Unpack(beside)
    return info, beside


def figures(server) -> dict[tuple[str, str], float]:
    """Every sample by its name and its labels' values."""
    with urllib.request.urlopen(f"http://{server.metrics_address}/metrics", timeout=30) as page:
        text = page.read().decode()
    samples = [
        ((sample.name, ",".join(sorted(sample.labels.values()))), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert len(dict(samples)) == len(samples), "each is there once"
    return dict(samples)


def files_of(authority: "trustme.CA", folder: Path, name: str) -> Tls:
    issued = authority.issue_cert(name)
    folder.mkdir(exist_ok=True)
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return Tls(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")
