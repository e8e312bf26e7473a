"""Who follows SGLang's own events knows to the token what it caches: our router, and Dynamo."""

import json
import subprocess
import sys

import pytest

from tests.hosts.sglang.engines import environment, free_port, tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("backend", ["sglang", "radixkv"])
@pytest.mark.parametrize("page_size", [1, 16])
def test_followers_know_what_the_engine_reports(model, tmp_path, backend, page_size):
    out, log = tmp_path / "out.json", tmp_path / "log"
    arguments = map(str, (model, backend, page_size, free_port(), free_port(), out))
    with log.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "tests.hosts.sglang.follow", *arguments],
            env=environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=600,
        )
    assert done.returncode == 0, log.read_text()[-4000:]
    rows = json.loads(out.read_text())
    for row in rows:
        assert row["router"] == row["dynamo"] == row["engine"], row
    assert sum(row["engine"] for row in rows) > 300
    assert any(row["engine"] < row["length"] - page_size for row in rows)  # some were evicted
