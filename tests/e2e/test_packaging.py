"""What a release is made of, and that the README's install line works."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from docs.site.release_notes import release_notes

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
INSTALL = re.search(r"^    (python3 -m pip install \.)", (ROOT / "README.md").read_text(), re.M)


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    code = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("radixkv-*.tar.gz")
    return path


def test_the_source_distribution_has_the_protocol_and_all_sources(sdist):
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    wanted = ["LICENSE", "README.md", "kernels/CMakeLists.txt", "examples/node/client.mjs"]
    wanted += [
        path.relative_to(ROOT).as_posix()
        for folder, kind in (("proto", "*.proto"), ("radixkv", "*.py"), ("kernels/tree", "*.cpp"))
        for path in (ROOT / folder).rglob(kind)
    ]
    assert [name for name in wanted if name not in names] == []
    assert [name for name in names if re.match(r"\.(ci|gpu|venv|peers)|build/", name)] == []


def test_wheels_are_made_for_each_python_that_is_supported():
    built = [each[2:-2] for each in PROJECT["tool"]["cibuildwheel"]["build"]]
    said = re.findall(r":: (3)\.(\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert built == ["".join(each) for each in said]
    assert PROJECT["project"]["requires-python"] == f">={said[0][0]}.{said[0][1]}"


def test_release_notes_are_the_section_of_a_version():
    log = "# Log\n\n## [Unreleased]\n\n- c\n\n## [0.2.0] - 2026-12-02\n\n- b\n\n## [0.1.0]\n\n- a\n"
    assert release_notes(changelog=log) == "- c\n"
    assert release_notes("0.2.0", log) == "- b\n"
    assert release_notes("0.1.0", log) == "- a\n"
    with pytest.raises(SystemExit):
        release_notes("0.3", log)
    assert release_notes().startswith("The first version")


@pytest.mark.slow
@pytest.mark.parametrize(("source", "core"), [("checkout", "native"), ("sdist", "python")])
def test_the_install_line_of_the_readme_works_in_an_empty_environment(
    source, core, sdist, tmp_path
):
    """From the checkout with a compiler, from the source distribution without one."""
    assert INSTALL is not None
    where = ROOT
    if source == "sdist":
        with tarfile.open(sdist) as packed:
            packed.extractall(tmp_path, filter="data")
        (where,) = tmp_path.glob("radixkv-*")
    elif shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler")
    env = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", env], check=True)
    compiler = {} if core == "native" else {"CC": "/bin/false", "CXX": "/bin/false"}
    clean = {name: value for name, value in os.environ.items() if name != "RADIXKV_NATIVE"}
    command = INSTALL[1].replace("python3", f"{env}/bin/python")
    done = subprocess.run(
        f"{command} --quiet --config-settings build-dir={tmp_path / 'build'}",
        shell=True, cwd=where, env=clean | compiler, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    check = [env / "bin" / "python", "-P", ROOT / "tests" / "support" / "installed.py", core]
    looked = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert looked.returncode == 0, looked.stderr
    assert str(env) in looked.stdout
