import threading

from radixkv import DEFAULT, Namespace, PrefixCache
from radixkv.service import Client


def hold(cache: PrefixCache, token_ids, namespace: Namespace = DEFAULT, **how):
    """Cache a prompt as an engine does; its slots."""
    request = cache.admit(token_ids, namespace, **how)
    assert request is not None
    cache.publish(request, request.length)
    slots = request.slots.tolist()
    cache.finish(request)
    return slots


def connect(address: str) -> Client:
    """A client that waits out a busy machine."""
    return Client(address, timeout_s=60)


class SlowCache(PrefixCache):
    """A cache whose matches wait, inside, until they are let go."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.is_inside, self.go = threading.Event(), threading.Event()

    def match_prefix(self, *args, **how):
        self.is_inside.set()
        assert self.go.wait(timeout=60)
        return super().match_prefix(*args, **how)
