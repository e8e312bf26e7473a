"""One engine that publishes, our router and Dynamo's indexer behind it, and what each says:
python follow.py FOLDER BACKEND PAGE_SIZE PORT REPLAY_PORT OUT
"""

import json
import random
import sys
import time
from pathlib import Path

from radixkv.integrations.events import EngineEvents
from radixkv.router import Router
from tests.hosts.sglang.engines import VOCABULARY, arguments
from tests.support.dynamo_indexer import running_indexer

SETTLE_S = 20


def main(folder, backend, page_size, port, replay_port, out):
    from sglang.srt.entrypoints.engine import Engine

    page_size = int(page_size)
    endpoint, replay = f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{replay_port}"
    published = {
        "publisher": "zmq",
        "endpoint": f"tcp://*:{port}",
        "replay_endpoint": f"tcp://*:{replay_port}",
        "topic": "",
    }
    engine = Engine(
        **arguments(
            folder,
            None if backend == "sglang" else backend,
            page_size=page_size,
            num_slots=480,
            kv_events_config=json.dumps(published),
        )
    )

    def ask(ids):
        how = {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True}
        return engine.generate(input_ids=ids, sampling_params=how)["meta_info"]["cached_tokens"]

    rng, prompts = random.Random(1), []
    roots = [[rng.randrange(VOCABULARY) for _ in range(60)] for _ in range(2)]
    for _ in range(14):  # before anyone follows
        base = rng.choice(roots)[: rng.randrange(20, 61)]
        prompts.append(base + [rng.randrange(VOCABULARY) for _ in range(40)])
        ask(prompts[-1])
    rows = []
    with Router() as router, running_indexer(Path(out).parent) as indexer:
        source = EngineEvents(endpoint, replay, block_size=page_size)
        router.add_worker("engine", source, page_size=page_size)
        indexer.register(endpoint, replay, page_size)
        until = time.monotonic() + SETTLE_S
        while not indexer.tokens(prompts[-1]) and time.monotonic() < until:
            # It asks for what it missed when it sees a gap, so something must happen.
            ask(prompts[-1])
            ask([rng.randrange(VOCABULARY) for _ in range(2 * page_size)])
            time.sleep(0.2)
        settle(router.index, indexer, prompts)
        for ids in prompts[::-1]:
            row = {"length": len(ids), "router": held(router.index, ids)}
            row |= {"dynamo": indexer.tokens(ids), "engine": ask([*ids, 7])}
            rows.append(row)
            settle(router.index, indexer, prompts)
    Path(out).write_text(json.dumps(rows))
    engine.shutdown()


def held(index, ids):
    return index.lookup(ids).get("engine", 0)


def settle(index, indexer, prompts):
    """Until both followers agree, twice with a moment between, or no longer; nothing happens
    meanwhile, and what they say then is compared."""
    until, before = time.monotonic() + SETTLE_S, None
    while time.monotonic() < until:
        now = [(held(index, ids), indexer.tokens(ids)) for ids in prompts]
        if now == before and any(ours for ours, _ in now) and all(a == b for a, b in now):
            return
        before = now
        time.sleep(0.5)


if __name__ == "__main__":
    main(*sys.argv[1:])
