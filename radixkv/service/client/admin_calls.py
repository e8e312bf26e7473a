"""The calls of operators: see `calls.py`."""

from radixkv.rpc import rpcs
from radixkv.service.client.calls import ClientCall, new_request_id
from radixkv.v1.admin_pb2 import CheckIntegrityRequest, ClearCacheRequest
from radixkv.v1.prefix_cache_pb2 import EvictPrefixesRequest


def evict(num_tokens: int, *, timeout_s: float | None = None) -> ClientCall[int]:
    """Evict unpinned tokens, coldest first; how many there were."""
    request = EvictPrefixesRequest(num_tokens=num_tokens, request_id=new_request_id())
    return ClientCall(rpcs.EVICT_PREFIXES, request, timeout_s, lambda r: int(r.num_evicted))


def clear(force: bool = False, *, timeout_s: float | None = None) -> ClientCall[int]:
    """Forget everything; the new epoch. Raises LiveRequestsError while pins are held, unless
    `force`.
    """
    request = ClearCacheRequest(force=force, request_id=new_request_id())
    return ClientCall(rpcs.CLEAR_CACHE, request, timeout_s, lambda r: int(r.header.epoch))


def check(*, timeout_s: float | None = None) -> ClientCall[list[str]]:
    """One line for each broken invariant of the cache; it is walked whole."""
    return ClientCall(
        rpcs.CHECK_INTEGRITY, CheckIntegrityRequest(), timeout_s, lambda r: list(r.violations)
    )
