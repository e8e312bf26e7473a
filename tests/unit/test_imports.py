"""Imports go one way, between files and between rooms, and each room loads only what it needs.

What counts as an import is said in `bench.imports`: late ones, those for types alone, and modules
that `radixkv.cores` is asked for by name count too.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from bench.imports import (
    PACKAGE,
    arrows,
    called,
    circles,
    imported,
    module_of,
    read_sources,
    room_of,
)

ROOT = Path(__file__).parents[2]
SOURCES = read_sources(ROOT)
BELOW = {
    "arguments",
    "arrays",
    "atomic_files",
    "cores",
    "errors",
    "extras",
    "folders",
    "kernels",
    "pages",
}
# A room on top may use the package itself (its version, its public names).
ON_TOP = BELOW | {"cache", "tree", "memory", "attention", "v1", "radixkv"}
ALLOWED = {
    "errors": set(),
    "atomic_files": set(),
    "folders": set(),
    "arguments": {"errors"},
    "arrays": set(),
    "pages": set(),
    "cores": {"errors"},
    "extras": {"errors"},
    "kernels": set(),
    "v1": set(),
    "tree": BELOW,
    "memory": BELOW,
    "attention": BELOW | {"memory"},
    "cache": BELOW | {"tree", "memory"},
    "radixkv": {"cache", "errors", "tree", "memory"},
    "rpc": BELOW | {"tree", "v1"},
    "service": ON_TOP | {"rpc"},
    "prompts": BELOW | {"tree"},
    "router": ON_TOP | {"rpc", "prompts"},
    "lab": ON_TOP | {"prompts", "router"},
    "integrations": ON_TOP | {"rpc", "service", "prompts"},
}
# These may use every room. They import late, which `LIGHT` below checks.
FREE = {"cli", "doctor", "demo", "__main__"}
ROOMS = {room_of(path) for path in SOURCES} | {"v1"}


def rooms_used(path):
    """The rooms that a file imports from, the package itself as `radixkv`."""
    for module, name in imported(path, SOURCES[path]):
        package, _, below = f"{module}.{name}".partition(".")
        if package == PACKAGE:
            room = below.partition(".")[0]
            yield room if room in ROOMS else PACKAGE


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_a_room_imports_only_from_the_rooms_below_it(path):
    room = room_of(path)
    if room in FREE:
        return
    assert room in ALLOWED, f"{room} is a new room: say here what it may import"
    assert set(rooms_used(path)) <= ALLOWED[room] | {room}


def test_the_table_of_rooms_goes_one_way():
    assert circles({room: set(used) - {room} for room, used in ALLOWED.items()}) == []
    assert ALLOWED.keys() | FREE == ROOMS


def test_no_file_imports_itself_by_way_of_others():
    assert circles(arrows(SOURCES)) == []


IMAGINARY = {
    "radixkv/__init__.py": "",
    "radixkv/tree/__init__.py": "from radixkv.tree.ring import Ring\n",
    "radixkv/tree/ring.py": "from . import policies\n",
    "radixkv/tree/policies.py": "",
    "radixkv/memory/__init__.py": "",
}
WAYS = {
    "at the top": "import radixkv.tree.ring\n",
    "by its room": "from radixkv.tree import Ring\n",
    "relative": "from .ring import Ring\n",
    "late": "def late():\n    from radixkv.tree import ring\n",
    "for types alone": "if TYPE_CHECKING:\n    from ..tree.ring import Ring\n",
    "as a core": 'load(core, native="radixkv.tree.ring:Ring", python="")\n',
    "by name": 'importlib.import_module("radixkv.tree.ring")\n',
}


@pytest.mark.parametrize("way", WAYS)
def test_a_made_up_circle_is_seen_whatever_the_import_looks_like(way):
    assert circles(arrows(IMAGINARY)) == []
    ring, policies = "radixkv/tree/ring.py", "radixkv/tree/policies.py"
    (circle,) = circles(arrows({**IMAGINARY, policies: WAYS[way]}))
    assert {ring, policies} <= set(circle)


def test_a_made_up_circle_in_the_package_is_seen():
    made_up = {**SOURCES, "radixkv/errors.py": "from radixkv.cache import PrefixCache\n"}
    assert any("radixkv/errors.py" in circle for circle in circles(arrows(made_up)))


# Files that import a module by a name that is not written there, and so unseen by these tests.
COMPUTED = {
    "radixkv/cores.py",  # the name that a factory gives it, which is seen there
    "radixkv/doctor.py",  # other projects' packages
    "radixkv/integrations/sglang/surface.py",  # SGLang's modules
    "radixkv/lab/logs/packed.py",  # readers of packed files, other projects' too
}


def is_computed(call):
    """Whether it is an import of a module that is named by something other than a text."""
    is_import = called(call) in ("import_module", "__import__")
    return is_import and not isinstance(call.args[0], ast.Constant)


def test_no_import_hides_behind_a_computed_name():
    found = {
        path
        for path, source in SOURCES.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and is_computed(node)
    }
    assert found == COMPUTED


def test_every_kind_of_import_is_seen():
    source = "import radixkv.cache\nfrom radixkv import memory\nfrom . import policies\n"
    source += "def late():\n    from ..service.client import Client\n"
    assert list(imported("radixkv/tree/imaginary.py", source)) == [
        ("radixkv.cache", ""),
        ("radixkv", "memory"),
        ("radixkv.tree", "policies"),
        ("radixkv.service.client", "Client"),
    ]


def test_a_test_imports_from_its_own_folder_and_from_support_and_never_from_a_test():
    tests = ROOT / "tests"
    wrong = []
    for path in tests.rglob("*.py"):
        folder = ".".join(path.relative_to(ROOT).parent.parts[:2])
        for module, name in imported(str(path.relative_to(ROOT)), path.read_text("utf-8")):
            whole = f"{module}.{name}"
            if module.startswith("tests.") and (
                not whole.startswith((f"{folder}.", "tests.support."))
                or any(part.startswith("test_") or part == "conftest" for part in whole.split("."))
            ):
                wrong.append(f"{path.relative_to(ROOT)} imports {whole}")
    assert wrong == []


HEAVY = ("torch", "grpc", "transformers", "triton", "sgl_kernel")
LIGHT = [
    ("radixkv", HEAVY),
    ("radixkv.memory", HEAVY),
    ("radixkv.memory.plan", HEAVY),
    ("radixkv.doctor", HEAVY),
    ("radixkv.cli", HEAVY),
    ("radixkv.router", HEAVY),
    ("radixkv.service.client", ("torch", "transformers")),
    ("radixkv.lab.logs.reading", (*HEAVY, "tokenizers", "jinja2")),
    ("radixkv.lab.report.page", (*HEAVY, "tokenizers", "jinja2", "matplotlib")),
]


@pytest.mark.parametrize(("module", "unwanted"), LIGHT)
def test_a_room_loads_only_what_it_needs(module, unwanted):
    code = f"import sys, {module}; print(sorted(set({unwanted!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
