"""Our router follows vLLM's events, and knows to the block what it caches."""

import json
import os
import subprocess
import sys

from radixkv.integrations.events import VllmNames
from tests.hosts.following import ADAPTER, judge
from tests.hosts.models import tiny_adapter, tiny_model
from tests.hosts.ports import free_port

BLOCK_SIZE = 32  # the least that vLLM takes on a CPU


def test_our_router_knows_what_the_engine_reports(tmp_path):
    model, adapter = tiny_model(tmp_path / "model"), tiny_adapter(tmp_path / ADAPTER)
    out, log = tmp_path / "out.json", tmp_path / "log"
    arguments = map(str, (model, adapter, BLOCK_SIZE, free_port(), free_port(), out))
    with log.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "tests.hosts.vllm.follow", *arguments],
            env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=1200,
        )
    assert done.returncode == 0, log.read_text()[-4000:]
    names = VllmNames(paths={ADAPTER: str(adapter)})
    judge(json.loads(out.read_text()), names, ADAPTER, BLOCK_SIZE)
