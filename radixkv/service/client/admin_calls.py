"""Calls for operators; see `calls.py`."""

from radixkv.rpc import codec, method_table
from radixkv.rpc.codec import Prompt
from radixkv.service.client.calls import ClientCall, new_request_id
from radixkv.tree import DEFAULT, Namespace, TokenIds, as_token_ids
from radixkv.v1.admin_pb2 import CheckIntegrityRequest, ClearCacheRequest
from radixkv.v1.prefix_cache_pb2 import EvictPrefixesRequest
from radixkv.v1.types_pb2 import TokenSequence


def evict(num_tokens: int, *, timeout_s: float | None = None) -> ClientCall[int]:
    """Evict up to `num_tokens` unpinned tokens, coldest first; returns how many were evicted.

    Parameters
    ----------
    num_tokens
        Tokens, rounded up to whole pages.
    timeout_s
        Seconds; None: as `Client` says.

    Returns
    -------
    int
        Tokens evicted.
    """
    request = EvictPrefixesRequest(num_tokens=num_tokens, request_id=new_request_id())
    return ClientCall(method_table.EVICT_PREFIXES, request, timeout_s, lambda r: int(r.num_evicted))


def evict_below(
    prompt: "TokenIds | Prompt", namespace: Namespace = DEFAULT, *, timeout_s: float | None = None
) -> ClientCall[int]:
    """Evict all that continues `prompt`, whole pages, and is not in use; how many tokens went.

    The prompt's own tokens stay; an empty one stands for the whole namespace.

    Parameters
    ----------
    prompt
        Token ids as (n,) int32, a list or bytes of little-endian int32; or a `Prompt`.
    namespace
        What must be equal besides the tokens.
    timeout_s
        Seconds; None: as `Client` says.

    Returns
    -------
    int
        Tokens evicted.
    """
    given = prompt if isinstance(prompt, Prompt) else Prompt(prompt)
    token_ids = as_token_ids(given.token_ids, "prompt")
    whole = given._replace(token_ids=token_ids)
    request = EvictPrefixesRequest(
        prefix=codec.write_sequence(whole, "prompt") if len(token_ids) else TokenSequence(),
        namespace=codec.write_namespace(namespace),
        request_id=new_request_id(),
    )
    return ClientCall(method_table.EVICT_PREFIXES, request, timeout_s, lambda r: int(r.num_evicted))


def clear(force: bool = False, *, timeout_s: float | None = None) -> ClientCall[int]:
    """Forget everything; returns the new epoch.

    Parameters
    ----------
    force
        Also while pins are held.
    timeout_s
        Seconds; None: as `Client` says.

    Returns
    -------
    int
        The new epoch.

    Raises
    ------
    LiveRequestsError
        While pins are held, unless `force`.
    """
    request = ClearCacheRequest(force=force, request_id=new_request_id())
    return ClientCall(method_table.CLEAR_CACHE, request, timeout_s, lambda r: int(r.header.epoch))


def check(*, timeout_s: float | None = None) -> ClientCall[list[str]]:
    """One line for each broken invariant of the cache, which is walked whole.

    Parameters
    ----------
    timeout_s
        Seconds; None: as `Client` says.

    Returns
    -------
    list[str]
        A line for each; empty when all is well.
    """
    return ClientCall(
        method_table.CHECK_INTEGRITY,
        CheckIntegrityRequest(),
        timeout_s,
        lambda r: list(r.violations),
    )
