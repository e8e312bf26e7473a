"""One mutant: `python bench/mutant.py FILE NUMBER PYTEST-ARGUMENTS` runs tests over a changed file.

The file on disk stays as it is: its module is loaded from the changed source. Exits as pytest does.
"""

import ast
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]

_OTHER_COMPARISON: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OTHER_SIGN: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_OTHER_JUNCTION: dict[type[ast.boolop], type[ast.boolop]] = {ast.And: ast.Or, ast.Or: ast.And}


class Site(NamedTuple):
    """A place that can be changed. change: does it, in the tree that the site was found in."""

    line: int
    kind: str
    change: Callable[[], None]


def sites(tree: ast.Module) -> list[Site]:
    """All of them, in order: comparisons, signs, conditions and calls whose result is not used.

    What only words an error, or asserts, is left out: no other behaviour depends on it.
    """
    return [site for node in _judged(tree) for site in _sites_of(node)]


def _judged(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
        return
    if isinstance(node, ast.FunctionDef) and node.name == "__repr__":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _judged(child)


def _sites_of(node: ast.AST) -> Iterator[Site]:
    if isinstance(node, ast.Compare):
        for at, op in enumerate(node.ops):
            other = _OTHER_COMPARISON[type(op)]
            yield Site(node.lineno, "comparison", partial(_set, node.ops, at, other()))
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OTHER_SIGN:
        sign = _OTHER_SIGN[type(node.op)]
        yield Site(node.lineno, "sign", lambda: setattr(node, "op", sign()))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield Site(node.lineno, "sign", lambda: setattr(node, "op", ast.UAdd()))
    elif isinstance(node, ast.BoolOp):
        junction = _OTHER_JUNCTION[type(node.op)]
        yield Site(node.lineno, "condition", lambda: setattr(node, "op", junction()))
    elif isinstance(node, ast.If | ast.IfExp) and not isinstance(node.test, ast.Compare):
        yield Site(node.lineno, "condition", lambda: setattr(node, "test", _not(node.test)))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        nothing = ast.copy_location(ast.Constant(None), node.value)
        yield Site(node.lineno, "call", lambda: setattr(node, "value", nothing))


def _set(items: list[Any], at: int, item: Any) -> None:
    items[at] = item


def _not(test: ast.expr) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(ast.Not(), test), test)


def changed(source: str, number: int) -> ast.Module:
    """The source with its site of that number changed."""
    tree = ast.parse(source)
    sites(tree)[number].change()
    return ast.fix_missing_locations(tree)


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from a changed source, and no other."""

    def __init__(self, path: Path, number: int) -> None:
        self._path, self._number = path, number
        self._name = ".".join(path.relative_to(ROOT).with_suffix("").parts)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        tree = changed(self._path.read_text(), self._number)
        exec(compile(tree, self._path, "exec"), module.__dict__)


def main() -> None:
    import pytest

    file, number, *arguments = sys.argv[1:]
    sys.path.insert(0, str(ROOT))
    sys.meta_path.insert(0, Changed(ROOT / file, int(number)))
    sys.exit(pytest.main(arguments))


if __name__ == "__main__":
    main()
