"""Who follows SGLang's own events knows to the token what it caches: our router, and Dynamo."""

import json
import subprocess
import sys

import pytest

from radixkv.integrations.events import SGLangNames
from tests.hosts.following import ADAPTER, judge
from tests.hosts.models import tiny_adapter, tiny_model
from tests.hosts.ports import free_port
from tests.hosts.sglang.engines import environment


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    return tiny_adapter(tmp_path_factory.mktemp("adapters") / ADAPTER)


@pytest.mark.parametrize("backend", ["sglang", "radixkv"])
@pytest.mark.parametrize("page_size", [1, 16])
def test_followers_know_what_the_engine_reports(model, adapter, tmp_path, backend, page_size):
    from sglang.srt.lora.lora_registry import LoRARef

    out, log = tmp_path / "out.json", tmp_path / "log"
    arguments = map(str, (model, adapter, backend, page_size, free_port(), free_port(), out))
    with log.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "tests.hosts.sglang.follow", *arguments],
            env=environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=1200,
        )
    assert done.returncode == 0, log.read_text()[-4000:]
    id_of_adapter = LoRARef.deterministic_id(ADAPTER, str(adapter))
    judge(json.loads(out.read_text()), SGLangNames(), id_of_adapter, page_size)
