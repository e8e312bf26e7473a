"""No part of the package reaches into another object: `._x` is for self and cls.

A private name of a module counts too, when another module imports it.
"""

import ast
from pathlib import Path

import pytest

from bench.imports import imported, read_sources

SOURCES = read_sources(Path(__file__).parents[2])
# Public methods of a NamedTuple, whose underscore keeps them apart from its fields.
PUBLIC = {"_asdict", "_fields", "_make", "_replace"}
# Extension modules, whose underscore marks them as the native half of a Python one.
EXTENSIONS = {"_core", "_planner", "_router"}

ALLOWED = {
    ("radixkv/integrations/transformers/paged_model.py", "_attn_implementation"): (
        "transformers has no public name for the attention that a configuration chooses"
    ),
}


def is_private(name):
    return name.startswith("_") and not name.endswith("__")


def is_own(value):
    """Whether it is self, cls or super(), whose private names are the object's own."""
    return ast.unparse(value) in ("self", "cls", "super()")


def reached_into(path, source):
    """Each private name that a file uses of another object or takes from another module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
            yield node.attr
    for module, name in imported(path, source):
        yield from (part for part in [*module.split("."), name] if is_private(part))


def test_private_names_are_used_by_their_owner_alone():
    found = {
        (path, name)
        for path, source in SOURCES.items()
        for name in reached_into(path, source)
        if name not in PUBLIC | EXTENSIONS
    }
    assert found == ALLOWED.keys()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("other._hidden", ["_hidden"]),
        ("self._cache._ledger.free()", ["_ledger"]),
        ("make()._hidden = 1", ["_hidden"]),
        ("from radixkv.tree.tokens import _read", ["_read"]),
        ("from radixkv.tree import _tokens", ["_tokens"]),
        ("import radixkv.tree._tokens", ["_tokens"]),
        ("self._own", []),
        ("cls._own()", []),
        ("super()._own()", []),
        ("other.__class__", []),
    ],
)
def test_a_reach_is_seen_and_an_object_s_own_name_is_not_one(source, names):
    assert list(reached_into("radixkv/tree/imaginary.py", source)) == names
