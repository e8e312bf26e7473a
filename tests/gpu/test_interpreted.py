"""Without a card the Triton kernels run in Triton's interpreter, in processes of their own."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch


@pytest.mark.skipif(torch.cuda.is_available(), reason="the card runs them")
@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="this process is interpreted")
@pytest.mark.parametrize("name", ["kernels", "backends", "latents", "steps", "generator", "sglang"])
def test_the_kernels_pass_their_tests_interpreted(name):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        "2",
        "--no-cov",
    ]
    # Coverage would follow the interpreter's every call, for minutes.
    env = {key: value for key, value in os.environ.items() if not key.startswith("COV")}
    done = subprocess.run(
        [*command, str(Path(__file__).with_name(f"test_{name}.py"))],
        env={**env, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
