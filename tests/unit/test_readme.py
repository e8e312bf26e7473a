"""The README's examples do what their comments say."""

import re
from pathlib import Path

from radixkv import PrefixCache
from radixkv.service import CacheServer

README = Path(__file__).parents[2] / "README.md"


def test_the_library_and_the_service_examples_run():
    examples = re.findall(r"^```python\n(.*?)^```", README.read_text("utf-8"), re.DOTALL | re.M)
    engine, _, service, remote = examples  # the second takes a model
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
