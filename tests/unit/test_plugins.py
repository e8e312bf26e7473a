"""A plugin of pytest that happens to be installed does not end the tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# As pytest-benchmark does under xdist.
WARNS = """
import warnings

def pytest_configure(config):
    warnings.warn("Benchmarks are automatically disabled")
"""


@pytest.fixture
def installed(tmp_path):
    """A folder in which a stand-in for pytest-benchmark is installed."""
    info = tmp_path / "pytest_benchmark-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pytest-benchmark\nVersion: 9\n")
    (info / "entry_points.txt").write_text("[pytest11]\nbenchmark = warns_at_start\n")
    (tmp_path / "warns_at_start.py").write_text(WARNS)
    return tmp_path


def run(folder, *options):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        [*command, "tests/unit/test_changelog.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_pytest_benchmark_beside_us_ends_no_run(installed):
    done = run(installed)
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_the_option_against_it_the_warning_would(installed):
    done = run(installed, "--override-ini=addopts=--import-mode=importlib")
    assert done.returncode != 0
    assert "Benchmarks are automatically disabled" in done.stdout + done.stderr
