"""The same requests to SGLang's own cache and to ours: equal answers, and as much cached.

SGLang checks between steps that no slot is lost or held twice, and raises.
"""

import json
import subprocess
import sys

import pytest

from tests.hosts.sglang.engines import environment, tiny_model

STRICT = {"SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))


def run(model, folder, backend, page_size, num_slots, plan, **more):
    """What each request got: length, cached tokens, answer."""
    out, log = folder / f"{backend}.json", folder / f"{backend}.log"
    arguments = map(str, (model, backend, page_size, num_slots, out, plan))
    with log.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "tests.hosts.sglang.ask", *arguments],
            env=environment(**STRICT, **more),
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=600,
        )
    assert done.returncode == 0, log.read_text()[-4000:]
    return json.loads(out.read_text())


@pytest.mark.parametrize(
    ("page_size", "num_slots", "plan", "more"),
    [
        (1, 1200, "chats", {}),
        (16, 1200, "chats", {}),
        (1, 1200, "chats", {"SGLANG_TEST_RETRACT": "1"}),
        # In a pool that holds them all: ours evicts to the token, SGLang's whole leaves.
        (1, 8192, "tenants", {}),
    ],
    ids=["page 1", "page 16", "retracted", "tenants"],
)
def test_answers_and_cached_tokens_are_equal(model, tmp_path, page_size, num_slots, plan, more):
    ours, theirs = (
        run(model, tmp_path, backend, page_size, num_slots, plan, **more)
        for backend in ("radixkv", "sglang")
    )
    assert ours == theirs
    assert len(ours) == {"chats": 24, "tenants": 200}[plan]
    assert sum(cached for _, cached, _ in ours) > 2000
    assert len({tuple(answer) for _, _, answer in ours}) > 12
