"""Which core runs: chosen in one way, by every room, without a change to what the other runs."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.imports import imported, module_of, read_sources
from radixkv import cores
from radixkv.cache.ledger import SlotLedger
from radixkv.errors import CoreUnavailableError, InvalidArgumentError
from radixkv.memory import TokenToKVAllocator
from radixkv.tree import RadixTree, new_reader
from tests.support.trees import CORES

ROOT = Path(__file__).parents[2]
SOURCES = read_sources(ROOT)
EXTENSIONS = {f"radixkv.kernels.{name}" for name in ("_core", "_router", "_planner")}


def choices():
    """The file, and the native and the Python object, of each call of `cores.load`."""
    for path, source in SOURCES.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "load":
                named = {word.arg: ast.literal_eval(word.value) for word in node.keywords}
                yield path, named["native"], named["python"]


CHOICES = list(choices())
native = pytest.mark.skipif("native" not in CORES, reason="the native core is not built here")


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_cores_are_chosen_in_factories():
    assert {Path(path).name for path, _, _ in CHOICES} == {"factory.py"}
    assert {"radixkv/tree/factory.py", "radixkv/memory/factory.py"} <= {
        path for path, *_ in CHOICES
    }


def test_only_what_a_factory_names_imports_a_native_part():
    named = {target.split(":")[0] for _, target, _ in CHOICES}
    importers = {
        module_of(path)
        for path, source in SOURCES.items()
        for module, name in imported(path, source)
        if {module, f"{module}.{name}"} & EXTENSIONS and Path(path).name != "factory.py"
    }
    assert importers <= named


@pytest.mark.parametrize(("native", "python"), [each[1:] for each in CHOICES])
def test_the_core_that_is_named_is_loaded(native, python, core, monkeypatch):
    module, name = {"native": native, "python": python}[core].split(":")
    found = cores.load(core, native=native, python=python)
    assert found is getattr(sys.modules[module], name)
    monkeypatch.setenv("RADIXKV_CORE", core)
    assert cores.load(None, native=native, python=python) is found


def test_what_is_no_core_is_named():
    with pytest.raises(InvalidArgumentError, match=r'"native", "python" or None; got \'rust\''):
        cores.load("rust", native="a:b", python="c:d")


def test_a_core_that_is_not_built_is_no_silent_choice():
    with pytest.raises(CoreUnavailableError, match='core="python"'):
        cores.load("native", native="radixkv.missing:Name", python="radixkv.errors:RadixKVError")


def test_a_core_that_is_not_built_gives_way_where_none_is_named(monkeypatch):
    monkeypatch.delenv("RADIXKV_CORE", raising=False)
    found = cores.load(None, native="radixkv.missing:Name", python="radixkv.errors:RadixKVError")
    assert found.__name__ == "RadixKVError"


USE = """
import json, sys
from radixkv import PrefixCache, cores
from radixkv.tree import as_token_ids
for native, python in {pairs!r}:
    cores.load(None, native=native, python=python)
cache = PrefixCache(64)
cache.finish(cache.admit([1, 2, 3]))
as_token_ids([1])
print(json.dumps([cache.core, sorted({extensions!r} & sys.modules.keys())]))
"""


@pytest.mark.parametrize("wanted", CORES)
def test_the_environment_reaches_every_room(wanted):
    code = USE.format(pairs=[each[1:] for each in CHOICES], extensions=EXTENSIONS)
    core, loaded = run(code, RADIXKV_CORE=wanted)
    assert core == wanted
    assert bool(loaded) == (wanted == "native")


CHANGED = """
import json, sys
from radixkv import PrefixCache, cores
from radixkv.tree import as_token_ids
for native, python in {pairs!r}:
    cores.load("python", native=native, python=python)
PrefixCache(64, core="python")
as_token_ids([1])
before = {{name: dict(vars(module)) for name, module in sys.modules.items()
          if name.startswith("radixkv")}}
for native, python in {pairs!r}:
    cores.load("native", native=native, python=python)
PrefixCache(64, core="native")
# A package gets its new submodules as attributes; nothing else may differ.
print(json.dumps([
    f"{{name}}.{{key}}"
    for name, known in before.items()
    for key, value in vars(sys.modules[name]).items()
    if known.get(key, None) is not value and f"{{name}}.{{key}}" not in sys.modules
]))
"""


@native
def test_choosing_one_core_changes_nothing_of_the_other():
    assert run(CHANGED.format(pairs=[each[1:] for each in CHOICES]), RADIXKV_CORE="python") == []


@native
def test_each_reader_reads_by_itself():
    ids = [1, 2, 3]
    assert new_reader("native").read_ids(ids).tolist() == ids
    assert new_reader("python").read_ids(ids) is None
    assert new_reader("python").token_ids(ids).tolist() == ids


ALONE = """
import json, sys
from radixkv.router.factory import new_holdings
holdings = new_holdings("python")
holder, root = holdings.add_holder(), holdings.add_root()
holdings.store(holder, 1, 0, 0, b"\\1\\0\\0\\0", root)
lengths = holdings.lengths([1, 2], root).tolist()
print(json.dumps([lengths, sorted({extensions!r} & sys.modules.keys())]))
"""


def test_python_holdings_read_without_a_native_part(monkeypatch):
    monkeypatch.delenv("RADIXKV_CORE", raising=False)
    assert run(ALONE.format(extensions=EXTENSIONS)) == [[1], []]


@pytest.mark.parametrize(
    ("contract", "arguments"), [(RadixTree, ()), (TokenToKVAllocator, (4,)), (SlotLedger, (None,))]
)
def test_a_contract_says_what_makes_one(contract, arguments):
    with pytest.raises(TypeError, match=r"is a contract; make .+ with radixkv\..*new_"):
        contract(*arguments)
