"""Exported names say what they take, return and raise: shapes, units, errors, in NumPy's form."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from docs.site.python_reference import ROOMS

ARRAYS = re.compile(r"Int32Array|Int64Array|TokenIds|Tensor|NDArray|BoolArray|FloatArray")
# A shape, or where it stands.
SHAPE = re.compile(r"\([\w_.]*(?:len\(\w+\))?,[^)]*\)|`\w|See |Checked|^Of ")
RAISES = re.compile(r"(?<!which )\b[Rr]aises? \w+Error")
ELSEWHERE = re.compile(r"^See `|arguments as of `|for asyncio")


def exported() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for room in ROOMS:
        module = importlib.import_module(room)
        for name in getattr(module, "__all__", []):
            value = getattr(module, name)
            if inspect.isclass(value) and value.__module__.startswith("radixkv"):
                found[f"{room}.{name}"] = value
                for member, method in methods(value):
                    found[f"{room}.{name}.{member}"] = method
            elif inspect.isfunction(value):
                found[f"{room}.{name}"] = value
    return found


def methods(value: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, member in vars(value).items():
        function = getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, function


EXPORTED = exported()


def sections(text: str) -> dict[str, dict[str, str]]:
    """The entries of each section of a docstring, by name."""
    parts = re.split(r"^(\w+)\n-+\n", inspect.cleandoc(text) + "\n", flags=re.MULTILINE)
    return {
        title: {
            name.strip("*"): said
            for name, said in re.findall(r"^(\S.*)\n((?:(?:    .*)?\n)+)", body, re.MULTILINE)
        }
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def parameters(value: Any) -> dict[str, str]:
    """The annotation of each parameter, or of each field of a record."""
    if inspect.isclass(value) and "__init__" not in vars(value) and value.__bases__ != (object,):
        return dict(getattr(value, "__annotations__", {})) if hasattr(value, "_fields") else {}
    given = inspect.signature(value).parameters.values()
    named = (each for each in given if each.name not in ("self", "cls"))
    return {each.name: str(each.annotation) for each in named if each.name[0] != "_"}


def faults(value: Any) -> list[str]:
    text = value.__doc__ or ""
    if ELSEWHERE.search(text) or (inspect.isclass(value) and issubclass(value, BaseException)):
        return []
    found = sections(text)
    said = found.get("Parameters", {}) | found.get("Attributes", {})
    wanted = {} if getattr(value, "_is_protocol", False) else parameters(value)
    lines = [f"{name} is not described" for name in wanted if name not in said]
    lines += [
        f"{name} has no shape"
        for name, annotation in wanted.items()
        if ARRAYS.search(str(annotation)) and not SHAPE.search(said.get(name, "").strip())
    ]
    lines += [
        f"{name} has no unit"
        for name in wanted
        if name.endswith("_s") and "econds" not in said.get(name, "")
    ]
    if inspect.isfunction(value):
        result = inspect.signature(value).return_annotation
        returns = result not in (None, "None", type(None), inspect.Signature.empty)
        if returns and "Returns" not in found:
            lines.append(f"what it returns is not described: {result}")
    if not text.strip():
        lines.append("there is no docstring")
    if RAISES.search(re.sub(r"^Raises\n-+\n.*", "", text, flags=re.DOTALL | re.MULTILINE)):
        lines.append("an error stands in prose")
    return lines


def test_every_exported_name_says_what_it_takes_returns_and_raises():
    assert {name: lines for name, value in EXPORTED.items() if (lines := faults(value))} == {}
    assert len(EXPORTED) > 200


@pytest.mark.parametrize(
    ("docstring", "fault"),
    [
        ("Does it.", "n is not described"),
        ("Does it.\n\nParameters\n----------\nn\n    Some.\n", "what it returns is not described"),
        ("Does it. Raises InvalidTokensError.", "an error stands in prose"),
    ],
)
def test_what_is_missing_is_found(docstring, fault):
    def example(n: int) -> int:
        return n

    example.__doc__ = docstring
    assert any(line.startswith(fault) for line in faults(example))
