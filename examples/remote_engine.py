"""An engine in a process of its own, which takes its slots from a server of the cache.

    radixkv serve --slots 1000
    python examples/remote_engine.py 127.0.0.1:50051

The K/V is here, the cache is there. What this engine holds hangs on its lease: if this process
dies, the server takes everything back.
"""

import sys
import uuid

import numpy as np

from radixkv.errors import OutOfSlotsError
from radixkv.service import Client, InsertCall, Lease


class RemoteEngine:
    """Computes prompts into K/V of its own, at the slots that it borrows."""

    def __init__(self, lease: Lease, num_slots: int) -> None:
        self.lease = lease
        self.kv = np.zeros(num_slots + 1, np.int32)

    def prefill(self, prompt: list[int]) -> int:
        """Compute what is not cached of a prompt, and store it; how many tokens were cached."""
        (found,) = self.lease.pin(prompt).matches  # pinned: not evicted while it is read
        new = prompt[found.length :]
        try:
            slots = self.lease.allocate(len(new)).slots
        except OutOfSlotsError:
            self.lease.release([found.pin_id])
            raise
        self.lease.check()  # by our own clock, before every use of the slots
        self.kv[slots] = new
        (done,) = self.lease.insert(InsertCall(new, slots, found.pin_id))
        self.lease.free(slots[: done.existing_length - found.length])  # others were first
        return found.length


def main(address: str, num_slots: int = 1000) -> None:
    with Client(address) as client, client.lease(pool_id=str(uuid.uuid4())) as lease:
        engine = RemoteEngine(lease, num_slots)
        for prompt in ([1, 2, 3, 4], [1, 2, 3, 9], [1, 2, 3, 4, 5]):
            print(f"{engine.prefill(prompt)} of {len(prompt)} tokens were cached")


if __name__ == "__main__":
    main(sys.argv[1])
