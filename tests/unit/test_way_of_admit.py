"""The way of a request through the files: as calls go, and as a reader finds it."""

import ast
import inspect
import sys
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import get_type_hints

import pytest

import radixkv
from radixkv.cache.ledger import SlotLedger
from radixkv.cache.lifecycle import Lifecycle
from radixkv.cache.loans import Loans
from radixkv.cache.lookups import Lookups
from radixkv.cache.prefix_cache import PrefixCache
from radixkv.cache.python_ledger import PythonLedger
from radixkv.cache.slots import Slots
from radixkv.memory import TokenToKVAllocator
from radixkv.tree import RadixTree
from radixkv.tree.radix_tree import Ledger
from tests.support.caches import store

PACKAGE = Path(radixkv.__file__).parent
MOST_CHANGES_OF_FILE = 12
PARTS = (PrefixCache, Lifecycle, Slots, Lookups, Loans)


def traced(call) -> list[tuple[str, str]]:
    """File and name of each Python function of radixkv that `call` calls, in order."""
    calls: list[tuple[str, str]] = []

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in path.parents:
            calls.append((str(path.relative_to(PACKAGE)), frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("cached", [50, 60], ids=["whole_node", "part_of_a_node"])
def test_admit_changes_files_seldom_and_reads_tokens_once(cached):
    cache = PrefixCache(256, core="python")
    store(cache, list(range(cached)))
    prompt = [*range(50), 101, 102, 103]
    calls = traced(lambda: cache.admit(prompt))
    assert cache.live_requests[0].cached_len == 50
    files = [file for file, _ in calls]
    changes = sum(file != after for file, after in pairwise(files))
    way = "\n".join(" ".join(call) for call in calls)
    shown = f"{changes} changes of file in {len(calls)} calls:\n{way}"
    assert changes <= MOST_CHANGES_OF_FILE, shown
    assert [name for _, name in calls].count("_as_int32") == 1, shown


def classes_of(part):
    """The class of each attribute of `part` that it says: annotated properties and parameters."""
    found = {
        name: get_type_hints(value.fget)["return"]
        for name, value in vars(part).items()
        if isinstance(value, property)
    }
    if not inspect.isfunction(vars(part).get("__init__")):
        return found
    found |= get_type_hints(part)
    hints = get_type_hints(part.__init__)
    (init,) = ast.parse(textwrap.dedent(inspect.getsource(part.__init__))).body
    known = {**vars(sys.modules[part.__module__]), **hints}
    assigned = [
        pair
        for node in ast.walk(init)
        if isinstance(node, ast.Assign)
        for target in node.targets
        for pair in (
            zip(target.elts, node.value.elts, strict=True)
            if isinstance(target, ast.Tuple)
            else [(target, node.value)]
        )
    ]
    for target, value in assigned:
        if isinstance(target, ast.Attribute):
            found[target.attr] = class_of(value, known)
    return found


def class_of(value, known):
    """What an expression of `__init__` makes or names; `object` for what is not followed."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return known.get(value.func.id, object)
    if isinstance(value, ast.Name):
        return known.get(value.id, object)
    if isinstance(value, ast.Attribute):
        return classes_of(class_of(value.value, known)).get(value.attr, object)
    return object


def reached(part, verb, seen):
    """(class, method) for each call that a static walk from `verb` finds on attributes of self."""
    if (part, verb) in seen or part not in PARTS:
        return seen | {(part, verb)}
    seen = seen | {(part, verb)}
    assert verb in vars(part), f"{part.__name__}.{verb} is not written in {part.__name__}"
    classes = classes_of(part)
    method = inspect.unwrap(vars(part)[verb])
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(method)))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        match node.func.value:
            case ast.Name("self"):
                seen = reached(part, node.func.attr, seen)
            case ast.Attribute(ast.Name("self"), attr):
                seen = reached(classes.get(attr, object), node.func.attr, seen)
    return seen


@pytest.mark.parametrize(
    ("verb", "goals"),
    [
        ("admit", {(RadixTree, "admit")}),
        ("publish", {(RadixTree, "publish")}),
        ("finish", {(RadixTree, "publish"), (RadixTree, "dec_lock_ref")}),
    ],
)
def test_a_static_walk_reaches_the_tree(verb, goals):
    assert goals <= reached(PrefixCache, verb, set())


def test_a_static_walk_reaches_the_allocator():
    assert (RadixTree, "take") in reached(PrefixCache, "extend", set())
    assert get_type_hints(RadixTree.take)["ledger"] is Ledger
    assert inspect.signature(Ledger.take) == inspect.signature(SlotLedger.take)
    assert classes_of(PythonLedger)["allocator"] is TokenToKVAllocator


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_no_part_of_the_cache_has_a_parent_or_a_child(part):
    assert part.__bases__ == (object,)
    assert not [child for child in part.__subclasses__() if child.__module__.startswith("radixkv")]
