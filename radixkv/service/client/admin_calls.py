"""Calls for operators; see `calls.py`."""

from radixkv.rpc import method_table
from radixkv.service.client.calls import ClientCall, new_request_id
from radixkv.v1.admin_pb2 import CheckIntegrityRequest, ClearCacheRequest
from radixkv.v1.prefix_cache_pb2 import EvictPrefixesRequest


def evict(num_tokens: int, *, timeout_s: float | None = None) -> ClientCall[int]:
    """Evict up to `num_tokens` unpinned tokens, coldest first; returns how many were evicted."""
    request = EvictPrefixesRequest(num_tokens=num_tokens, request_id=new_request_id())
    return ClientCall(method_table.EVICT_PREFIXES, request, timeout_s, lambda r: int(r.num_evicted))


def clear(force: bool = False, *, timeout_s: float | None = None) -> ClientCall[int]:
    """Forget everything; returns the new epoch.

    Raises LiveRequestsError while pins are held, unless `force`.
    """
    request = ClearCacheRequest(force=force, request_id=new_request_id())
    return ClientCall(method_table.CLEAR_CACHE, request, timeout_s, lambda r: int(r.header.epoch))


def check(*, timeout_s: float | None = None) -> ClientCall[list[str]]:
    """One line for each broken invariant of the cache, which is walked whole."""
    return ClientCall(
        method_table.CHECK_INTEGRITY,
        CheckIntegrityRequest(),
        timeout_s,
        lambda r: list(r.violations),
    )
