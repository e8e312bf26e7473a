"""Imports go one way, and each room loads only what it needs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import radixkv

PACKAGE = Path(radixkv.__file__).parent
BELOW = {"arguments", "cores", "errors", "kernels"}
# A room on top may use the package itself (its version, its public names).
ON_TOP = BELOW | {"cache", "tree", "memory", "attention", "v1", "radixkv"}
ALLOWED = {
    "errors": set(),
    "arguments": {"errors"},
    "cores": {"errors"},
    "kernels": set(),
    "v1": set(),
    "tree": BELOW,
    "memory": BELOW,
    "attention": BELOW | {"memory"},
    "cache": BELOW | {"tree", "memory"},
    "radixkv": {"cache", "errors", "tree", "memory"},
    "rpc": BELOW | {"tree", "v1"},
    "service": ON_TOP | {"rpc"},
    "router": ON_TOP | {"rpc"},
    "lab": ON_TOP,
    "integrations": ON_TOP,
}
# What may use every room; it imports late, which the tests below hold.
FREE = {"cli", "doctor", "demo", "__main__"}


def room_of(module):
    """The room of a dotted name in radixkv; `radixkv` for the package itself."""
    parts = module.split(".")
    is_room = len(parts) > 1 and any(PACKAGE.glob(f"{parts[1]}*"))
    return parts[1] if is_room else "radixkv"


def module_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path):
    """Every module of radixkv that a file imports, wherever in the file."""
    package = module_of(path).split(".")[: None if path.name == "__init__.py" else -1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            source = ".".join(filter(None, [base, node.module]))
            yield from (f"{source}.{name.name}" for name in node.names)


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "v1")


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_go_one_way(path):
    room = room_of(module_of(path))
    if room in FREE:
        return
    assert room in ALLOWED, f"{room} is a new room: say here what it may import"
    used = {room_of(name) for name in imported(path) if name.split(".")[0] == "radixkv"}
    assert used <= ALLOWED[room] | {room}


def test_the_walk_sees_every_kind_of_import(tmp_path):
    path = PACKAGE / "tree" / "imaginary.py"
    source = "import radixkv.cache\nfrom radixkv import memory\nfrom . import policies\n"
    source += "def late():\n    from ..service.client import Client\n"
    shown = tmp_path / "imaginary.py"
    shown.write_text(source)

    class Placed(type(path)):
        def read_text(self, **how):
            return shown.read_text(**how)

    assert list(imported(Placed(path))) == [
        "radixkv.cache",
        "radixkv.memory",
        "radixkv.tree.policies",
        "radixkv.service.client.Client",
    ]


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
