"""Whether workers cache what they were sent. If not, the router is asked about other tokens."""

from typing import Any

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.router.index import PrefixIndex
from radixkv.tree import Namespace, as_token_ids

# One of so many picks is looked at again when it ends.
SAMPLE_EVERY = 16
_TOKENS = 64
BYTES = (bytes, bytearray)


class CacheMissSampler:
    """Of a sample of finished picks, counts the prompts that their worker did not cache.

    num_checks: prompts looked at. num_misses: those of which the worker holds less than half of the
    first 64 tokens.
    """

    def __init__(self, index: PrefixIndex) -> None:
        self._index = index
        self.num_checks = self.num_misses = 0

    def check(self, worker: str, namespace: Namespace, beginning: Int32Array | None) -> None:
        """Look whether `worker` holds a prompt's beginning; None: the pick is not in the sample."""
        if beginning is not None and worker in self._index.workers:
            held = self._index.length(worker, beginning, namespace)
            self.num_checks += 1
            self.num_misses += 2 * held < len(beginning)


def beginning_of(token_ids: Any) -> Int32Array:
    """A copy of the first tokens, (n,) int32; the rest is not read. Raises InvalidTokensError."""
    items = 4 * _TOKENS if isinstance(token_ids, BYTES) else _TOKENS
    return np.array(as_token_ids(token_ids[:items]))
