"""mini-sglang's own tests of its cache manager, with our tree behind it: examples/mini_sglang.py.

MINI_SGLANG names a checkout of it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def test_its_own_tests_pass_on_our_tree(tmp_path):
    if "MINI_SGLANG" not in os.environ:
        pytest.skip("needs mini-sglang: set MINI_SGLANG to a checkout")
    sources = Path(os.environ["MINI_SGLANG"])
    theirs = (sources / "tests" / "core" / "test_cache_allocate.py").read_text()
    assert 'type="radix"' in theirs
    ours = theirs.replace('type="radix"', 'type="radixkv"')
    ours = ours.replace("import torch\n", "import torch\nimport mini_sglang\n", 1)
    (tmp_path / "test_cache_allocate.py").write_text(ours)
    paths = [str(EXAMPLES), str(sources / "python"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", "/dev/null", "-q", "-rA", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout
