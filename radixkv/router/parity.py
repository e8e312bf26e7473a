"""Whether workers cache what they were sent: if not, the router is asked about other tokens."""

from typing import Any

import numpy as np

from radixkv.router.index import PrefixIndex
from radixkv.tree import Namespace, as_token_ids
from radixkv.tree.tokens import Int32Array

# Of the picks, one in so many is looked at again when it ends.
SAMPLE_EVERY = 16
_TOKENS = 64
BYTES = (bytes, bytearray)


class Parity:
    """Counts checks, and faults among them: prompts whose beginning is not where it was sent."""

    def __init__(self, index: PrefixIndex) -> None:
        self._index = index
        self.num_checks = self.num_faults = 0

    def check(self, worker: str, namespace: Namespace, first: Int32Array | None) -> None:
        """Whether `worker` holds most of a prompt's beginning; None: the prompt is no sample."""
        if first is not None and worker in self._index.workers:
            held = self._index.lookup(first, namespace).get(worker, 0)
            self.num_checks += 1
            self.num_faults += 2 * held < len(first)


def beginning_of(token_ids: Any) -> Int32Array:
    """A copy of the first tokens; the rest is not read."""
    items = 4 * _TOKENS if isinstance(token_ids, BYTES) else _TOKENS
    return np.array(as_token_ids(token_ids[:items]))
