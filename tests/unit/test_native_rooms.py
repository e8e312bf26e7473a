"""What of the native code may know Python, and which room includes which."""

import re
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "kernels"
# Each room and the rooms below it.
ROOMS = {
    "tree": set(),
    "router": {"tree"},
    "attention": set(),
    "binding": {"tree", "router", "attention"},
    "fuzz": {"tree"},
}
PYTHON_FREE = [room for room in ROOMS if room != "binding"]


def sources(room):
    files = sorted(file for file in (KERNELS / room).rglob("*") if file.suffix in {".cpp", ".hpp"})
    assert files, f"kernels/{room} has no sources"
    return files


def includes(file, pattern):
    return re.findall(rf"^\s*#\s*include\s*{pattern}", file.read_text(), re.MULTILINE)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_includes_itself_and_the_rooms_below_it(room):
    for file in sources(room):
        for name in includes(file, r'"([^"]+)"'):
            is_own = (file.parent / name).is_file() or (KERNELS / name).is_relative_to(
                KERNELS / room
            )
            assert is_own or name.split("/")[0] in ROOMS[room], f"{file} includes {name}"


@pytest.mark.parametrize("room", PYTHON_FREE)
def test_only_the_binding_knows_python(room):
    python = re.compile(r"\bPython\.h\b|nanobind|numpy|\bnb::|\bPy[A-Z_]\w*\(")
    for file in sources(room):
        assert not python.search(file.read_text()), f"{file} knows Python"


def test_the_binding_does_know_python():
    assert any(includes(file, "<(nanobind[^>]*)>") for file in sources("binding"))
