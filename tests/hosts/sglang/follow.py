"""One engine that publishes, and what its followers know of it:
python follow.py FOLDER ADAPTER BACKEND PAGE_SIZE PORT REPLAY_PORT OUT
"""

import json
import sys
from pathlib import Path

from tests.hosts import following
from tests.hosts.sglang.engines import arguments
from tests.support.dynamo_indexer import running_indexer


def main(folder, adapter, backend, page_size, port, replay_port, out):
    from sglang.srt.entrypoints.engine import Engine

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
            page_size=int(page_size),
            num_slots=480,
            kv_events_config=json.dumps(published),
            enable_lora=True,
            lora_paths={following.ADAPTER: adapter},
            lora_backend="torch_native",
        )
    )

    def ask(prompt):
        answer = engine.generate(
            input_ids=prompt.ids,
            sampling_params={"max_new_tokens": 1, "temperature": 0, "ignore_eos": True},
            lora_path=prompt.adapter,
            cache_salt=prompt.salt,
        )
        return answer["meta_info"]["cached_tokens"]

    endpoint, replay = (f"tcp://127.0.0.1:{each}" for each in (port, replay_port))
    with running_indexer(Path(out).parent) as indexer:
        follow = following.Follow(ask, endpoint, replay, int(page_size), indexer)
        Path(out).write_text(json.dumps(follow.run()))
    engine.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
