"""Memory that runs out at any line of the native holdings: a call happens whole or not at all."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_each_call_is_whole_or_changes_nothing_whichever_allocation_fails(tmp_path):
    program, kernels = tmp_path / "failing", ROOT / "kernels"
    sources = [Path(__file__).parent / "failing_allocations.cpp", *kernels.glob("router/*.cpp")]
    subprocess.run(
        ["g++", "-std=c++20", "-O1", f"-I{kernels}", *sources, "-o", program], check=True
    )
    done = subprocess.run([program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    met = dict(line.rsplit(": ", 1) for line in done.stdout.splitlines())
    assert len(met) == 14
    assert int(met["a split and a leaf"]) == 4, "the run, a leaf, a head, and what is left"
    assert int(met["one leaf more"]) > 2 * 61, "where a table grows, that fails too"
