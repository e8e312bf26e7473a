"""The README's examples do what their comments say."""

import re
from pathlib import Path

import torch

from radixkv import PrefixCache
from radixkv.memory.kv_pool import MHATokenToKVPool
from radixkv.service import CacheServer

README = Path(__file__).parents[2] / "README.md"
EXAMPLES: list[str] = re.findall(
    r"^```python\n(.*?)^```", README.read_text("utf-8"), re.DOTALL | re.M
)


def test_the_library_and_the_service_examples_run():
    engine, *_, service, remote = EXAMPLES  # what is between needs a model or a card
    names: dict = {}
    exec(engine, names)
    assert names["request"].state == "finished"
    assert names["slots"].tolist() == [5]
    said = "client.match([[1, 2, 3, 9], [7]]).lengths"
    exec(service.replace(said, f"lengths = {said}"), names)
    assert names["lengths"] == [3, 0]
    with CacheServer(PrefixCache(64), "127.0.0.1:0", alone=True) as server:
        names["prompt"] = [1, 2, 3, 4]
        exec(remote.replace("127.0.0.1:50051", server.address), names)
    assert names["done"].cached_length == 4


def test_the_attention_example_runs_by_the_reference():
    cache, pool = PrefixCache(32), MHATokenToKVPool(32, 2, 2, 8, "float32")
    running = [cache.admit([1, 2, 3]), cache.admit([1, 2, 4, 5])]
    assert None not in running
    q, k, v = (torch.randn(2, heads, 8) for heads in (4, 2, 2))
    names = {"pool": pool, "running": running, "num_layers": 2, "q": q, "k": k, "v": v}
    exec(EXAMPLES[3].replace('"tree"', '"reference"').replace(", q_heads=32", ""), names)
    assert names["output"].shape == q.shape
    assert torch.equal(pool.k(1)[[request.slots[-1] for request in running]], k)
