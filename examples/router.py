"""A router inside a gateway: which of several servers gets each prompt.

    radixkv serve --slots 1000 --listen 127.0.0.1:50051
    radixkv serve --slots 1000 --listen 127.0.0.1:50052
    python examples/router.py 127.0.0.1:50051 127.0.0.1:50052

`radixkv route` is the same as a process of its own, which `RouterClient` asks.
"""

import sys
import time
from contextlib import ExitStack

from radixkv.router import Router
from radixkv.service import Client


def main(*addresses: str) -> None:
    with ExitStack() as stack:
        router = stack.enter_context(Router("cache-aware"))
        for address in addresses:
            router.follow(address, stack.enter_context(Client(address)), address=address)
        while any(worker.view.state != "current" for worker in router.workers()):
            time.sleep(0.05)  # an engine that never answers would not become current: set a limit
        system = list(range(50))
        for turn in range(4):
            pick = router.pick([*system, turn])
            print(f"to {pick.worker}: {pick.matched_length} tokens there, {pick.reason}")
            # send the request to the engine at pick.worker, stream its answer
            router.finish(pick)  # it is load no longer
        for status in router.workers():
            print(f"{status.address}: {status.view.state}, load {status.load:g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
