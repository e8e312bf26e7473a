"""The package as it is built: with the native core, and where no compiler works."""

import os
import re
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy
import pytest

ROOT = Path(__file__).parents[2]
NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}
(CI_ASSERTS,) = re.findall(r"\.venv/bin/python -c '([^']+)'", (ROOT / ".ci/run").read_text())


def build_wheel(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps"]
    clean = {name: value for name, value in os.environ.items() if name != "RADIXKV_NATIVE"}
    return subprocess.run(
        [*command, "--config-settings", f"build-dir={folder / 'build'}", "-w", folder, ROOT],
        env=clean | env,
        capture_output=True,
        text=True,
        check=False,
    )


def names_in(folder: Path) -> list[str]:
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


@pytest.fixture(scope="module")
def plain_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    built = build_wheel(folder, **NO_COMPILER)
    assert built.returncode == 0, built.stderr
    return folder


def test_without_a_compiler_the_package_installs_with_the_python_core(plain_wheel):
    names = names_in(plain_wheel)
    assert "radixkv/tree/python_tree.py" in names
    assert not [name for name in names if name.endswith(".so")]


def test_the_package_without_a_native_core_says_so_and_works(plain_wheel, tmp_path):
    (wheel,) = plain_wheel.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import radixkv; from radixkv.doctor import core_line; print(core_line());"
        "cache = radixkv.PrefixCache(num_slots=8); cache.finish(cache.admit([1, 2]), up_to=2);"
        "print(cache.probe([1, 2, 3]), radixkv.__file__)"
    )
    packages = Path(numpy.__file__).parents[1]
    ran = subprocess.run(
        # -S: without it an editable installation here would be found first.
        [sys.executable, "-S", "-c", code],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{packages}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "core: python" in ran.stdout
    assert ran.stdout.splitlines()[-1] == f"2 {tmp_path / 'radixkv' / '__init__.py'}"


def test_a_native_core_that_must_be_there_and_does_not_build_is_an_error(tmp_path):
    built = build_wheel(tmp_path, RADIXKV_NATIVE="1", **NO_COMPILER)
    assert built.returncode != 0
    assert not list(tmp_path.glob("*.whl"))


def test_what_ci_asserts_holds_of_the_native_core_and_not_of_the_python_core():
    native = run_code(CI_ASSERTS, RADIXKV_CORE="")
    is_built = find_spec("radixkv.kernels._core") is not None
    assert (native.returncode == 0) is is_built, native.stderr
    python = run_code(CI_ASSERTS, RADIXKV_CORE="python")
    assert "the core is not native" in python.stderr


def run_code(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=os.environ | env, cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_make_installs_again_once_a_file_is_added_moved_or_removed_and_only_then(tmp_path):
    for name in (".venv/bin", "radixkv/tree", "kernels"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("pyproject.toml", "radixkv/a.py", "kernels/CMakeLists.txt", ".venv/bin/python"):
        (tmp_path / name).touch()
    (tmp_path / ".venv/.deps").touch()

    def installs() -> bool:
        return "pip install" in make(tmp_path, "install", "PIP=echo pip install", "CORE=:")

    assert [installs(), installs()] == [True, False]
    (tmp_path / "radixkv/a.py").write_text("a = 1\n")
    assert not installs()
    (tmp_path / "radixkv/a.py").rename(tmp_path / "radixkv/tree/a.py")
    assert [installs(), installs()] == [True, False]
    (tmp_path / "radixkv/b.py").touch()
    assert [installs(), installs()] == [True, False]
    (tmp_path / "radixkv/b.py").unlink()
    assert [installs(), installs()] == [True, False]


def make(folder: Path, *arguments: str) -> str:
    command = ["make", "-f", str(ROOT / "Makefile"), *arguments]
    # Not as a part of the make that may be running these tests.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    made = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
    return made.stdout
