"""The public surface: what `__all__` says is there, and nothing else is promised."""

import importlib
import inspect
import re

import pytest

import radixkv
from radixkv import errors

ROOMS = ["radixkv", "radixkv.tree", "radixkv.memory", "radixkv.attention", "radixkv.router"]


def test_the_package_exports_what_its_users_import():
    assert set(radixkv.__all__) == {
        "DEFAULT",
        "Namespace",
        "PrefixCache",
        "RadixTree",
        "Request",
        "__version__",
        "new_tree",
    }


@pytest.mark.parametrize("room", ROOMS)
def test_every_exported_name_is_there_once(room):
    module = importlib.import_module(room)
    names = module.__all__
    assert len(set(names)) == len(names)
    assert all(hasattr(module, name) for name in names)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_no_public_name_beyond_its_exports(room):
    module = importlib.import_module(room)
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public <= set(module.__all__)


def test_the_outline_of_the_errors_shows_every_class_below_its_base():
    drawn = re.findall(r"^ {4}([│├└─ ]*)(\w+Error)\b", errors.__doc__, re.MULTILINE)
    bases, last = [], []
    for indent, name in drawn:
        last[len(indent) // 4 :] = [name]
        bases.append((name, last[-2] if len(last) > 1 else "Exception"))
    real = [
        (name, value.__base__.__name__)
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.RadixKVError)
    ]
    assert sorted(bases) == sorted(real)
