"""The cache: the tree, the pools and the life of a request, under one lock.

`prefix_cache.py` is what an engine embeds; the other files are its parts:

    lookups.py, lifecycle.py, loans.py     what its public verbs do, each inside one transaction
    slots.py, ledger.py                    taking, evicting and freeing slots; who holds which
    request.py, pin.py, borrowers.py       what is kept of a request, of a pin, of slots on loan
    transaction.py, events.py, runs.py     one call as one revision of the log, and its followers
    weights.py, capacity.py                which weights are served; what more memory would give
    stats.py, integrity.py                 counters; what must hold between any two calls
"""

from radixkv.cache.prefix_cache import PrefixCache
from radixkv.cache.request import Request

__all__ = ["PrefixCache", "Request"]
