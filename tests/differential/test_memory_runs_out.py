"""Memory runs out in the middle of a call: the call happens whole or changes nothing.

What cannot be undone, in Python, has the cache refuse its calls and say why.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from radixkv.tree.policies import POLICIES

HERE = Path(__file__).parent
COMPILER = shutil.which("g++") or shutil.which("clang++")

pytest.importorskip("radixkv.kernels._core")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="allocations are failed with LD_PRELOAD"),
    pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler"),
    pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="ASan has its own"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("failing") / "failing.so"
    source = HERE / "failing.cpp"
    subprocess.run([COMPILER, "-O1", "-shared", "-fPIC", source, "-o", path], check=True)
    return path


def fail_each(library, *args, **environment):
    """What `failing.py` found."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.differential.failing", *args],
        env={**os.environ, "LD_PRELOAD": str(library), **environment},
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[0])


@pytest.mark.parametrize("page_size", [1, 4])
def test_each_allocation_of_the_core_fails_once(library, page_size):
    found = fail_each(library, "core", str(page_size), *POLICIES)
    assert found["faults"] == []
    assert found["failed"] > 100 * len(POLICIES)
    # Two inserts are two changes of the tree: between them there is no way back.
    assert set(found["refused"]) <= {"store"}


def test_each_allocation_of_python_fails_once(library):
    found = fail_each(library, "python", "1", "lru", PYTHONMALLOC="malloc")
    assert found["faults"] == []
    assert found["failed"] > 1000
    assert 0 < sum(map(len, found["refused"].values())) < found["failed"] / 4
