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


def found_by(script, *args, **environment):
    done = subprocess.run(
        [sys.executable, "-m", f"tests.differential.{script}", *args],
        # Without coverage's tracer, which does not survive allocations that fail.
        env={**{k: v for k, v in os.environ.items() if not k.startswith("COV")}, **environment},
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[0])


@pytest.mark.parametrize("page_size", [1, 4])
def test_each_allocation_of_the_core_fails_once(library, page_size):
    found = found_by("failing", "core", str(page_size), *POLICIES, LD_PRELOAD=str(library))
    assert found["faults"] == []
    assert found["failed"] > 100 * len(POLICIES)
    # Two inserts are two changes of the tree: between them there is no way back.
    assert set(found["refused"]) <= {"store"}


def test_each_allocation_of_python_fails_once(library):
    found = found_by(
        "failing", "python", "1", "lru", PYTHONMALLOC="malloc", LD_PRELOAD=str(library)
    )
    assert found["faults"] == []
    assert found["failed"] > 1000
    assert 0 < sum(map(len, found["refused"].values())) < found["failed"] / 4


def test_under_a_limit_of_memory_the_cache_is_sound_or_refuses():
    found = [found_by("limited", str(seed), OMP_NUM_THREADS="1") for seed in (1, 2, 3)]
    assert sum(sum(each["errors"].values()) for each in found) >= 3
    assert [each["broken"] for each in found] == [[], [], []]
    # What the core finds no memory for changes nothing: service goes on.
    refused = [each for each in found if each["refused"]]
    assert all(any(name.startswith("MemoryError") for name in each["errors"]) for each in refused)
