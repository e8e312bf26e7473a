"""The same names and defaults in a contract, in the native core that keeps it, and in its stub."""

import ast
import inspect
from pathlib import Path

import pytest

import radixkv.kernels
from radixkv.cache.ledger import SlotLedger
from radixkv.memory import TokenToKVAllocator
from radixkv.router.holdings import Holdings
from radixkv.tree import RadixTree
from radixkv.tree.namespace import DEFAULT
from radixkv.tree.tickets import Tickets

_core = pytest.importorskip("radixkv.kernels._core", reason="the native core is not built here")
_router = pytest.importorskip("radixkv.kernels._router")

STUBS = Path(radixkv.kernels.__file__).parent
NATIVE = {
    "Tree": (_core, RadixTree),
    "SlotAllocator": (_core, TokenToKVAllocator),
    "Ledger": (_core, SlotLedger),
    "TicketRing": (_core, Tickets),
    "Holdings": (_router, Holdings),
}


def shape(arguments):
    """The names of a function's arguments; `=` behind those with a default, `*` before keywords."""
    positional = arguments.posonlyargs + arguments.args
    required = len(positional) - len(arguments.defaults)
    names = [arg.arg + "=" * (at >= required) for at, arg in enumerate(positional)]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    named = [f"*{arg.arg}" + "=" * (default is not None) for arg, default in keywords]
    return [name for name in names if name != "self"] + named


def parsed(signature):
    """`signature` as nanobind writes it: types that Python cannot read, defaults by number."""
    readable = signature.replace("\\", "d")
    (function,) = ast.parse(f"{readable}: ...").body
    return shape(function.args)


def in_stub(module, name):
    tree = ast.parse((STUBS / f"{module.__name__.rpartition('.')[2]}.pyi").read_text())
    body = next(
        node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name
    )
    return {node.name: shape(node.args) for node in body if isinstance(node, ast.FunctionDef)}


def in_core(module, name):
    members = vars(getattr(module, name))
    found = {}
    for member, value in members.items():
        if isinstance(value, property):
            found[member] = []
        elif hasattr(value, "__nb_signature__"):
            found[member] = parsed(value.__nb_signature__[0][0])
    return found


def in_contract(function):
    if isinstance(function, property):
        return []
    names = []
    for parameter in inspect.signature(function).parameters.values():
        mark = "*" * (parameter.kind is parameter.KEYWORD_ONLY)
        names.append(mark + parameter.name + "=" * (parameter.default is not parameter.empty))
    return names[1:]


@pytest.mark.parametrize("name", NATIVE)
def test_the_stub_has_the_arguments_of_the_core(name):
    module, _ = NATIVE[name]
    core, stub = in_core(module, name), in_stub(module, name)
    assert stub["__init__"] == core["__init__"]
    for method, arguments in stub.items():
        # What a core has without a signature, such as a lambda, has no arguments.
        assert core.get(method, []) == arguments, method
    attributes = {member for member, arguments in core.items() if not arguments}
    assert set(core) <= set(stub) | attributes


@pytest.mark.parametrize("name", NATIVE)
def test_the_core_has_the_arguments_of_its_contract(name):
    module, contract = NATIVE[name]
    core = in_core(module, name)
    shared = [method for method in core if hasattr(contract, method) and method[:2] != "__"]
    assert len(shared) >= 3
    for method in shared:
        function = inspect.getattr_static(contract, method)
        if callable(function) or isinstance(function, property):
            assert core[method] == in_contract(function), method


@pytest.mark.parametrize("method", ["match_prefix", "insert", "insert_from", "admit", "publish"])
def test_the_core_has_the_defaults_of_its_contract(method):
    (_, _, defaults), *_ = getattr(_core.Tree, method).__nb_signature__
    expected = [
        parameter.default
        for parameter in inspect.signature(getattr(RadixTree, method)).parameters.values()
        if parameter.default is not parameter.empty
    ]
    assert list(defaults) == expected
    assert defaults[0] is DEFAULT
