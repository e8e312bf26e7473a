"""Measures of the code, from the files themselves: python -m bench.measures [--before COMMIT]

Before and after: the files of a commit, and those that git knows in the working tree. Python that
protoc generates and that Triton compiles is left out. A function's length is its lines from `def`
on without its docstring; its parameters are all but self and cls; the 90th percentile of n values
is the value at 0.9 n in their order. A name is public where it has no underscore in front, and is a
class or a function of a module or a public class. What counts as an import is said in
bench/imports.py.
"""

import ast
import io
import re
import statistics
import subprocess
import tarfile
import tokenize
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.imports import arrows, arrows_back, between_rooms, circles, sources_of
from bench.report import RESULTS, ROOT, save

FOLDERS = ("radixkv", "tests", "bench")
KERNELS = ("kernels/", "radixkv/kernels/")
NATIVE = (".cpp", ".hpp", ".h", ".cu", ".cuh")
Texts = Mapping[str, str]
"""The text of each file by its path; what is not text has none."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = Function | ast.ClassDef | ast.Module


def committed(commit: str) -> dict[str, str]:
    """The files of a commit."""
    packed = subprocess.run(
        ["git", "archive", commit], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive if entry.isfile()}
        return {name: _text(file.read()) for name, file in files.items() if file is not None}


def tracked() -> dict[str, str]:
    """The files that git knows, as they are in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    return {
        str(path.relative_to(ROOT)): _text(path.read_bytes())
        for path in paths
        if path.is_file() and not path.is_symlink()
    }


def _text(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")


def measured(texts: Texts) -> dict[str, Any]:
    """Everything that is measured of one state of the files."""
    sources = sources_of({path: text for path, text in texts.items() if path.endswith(".py")})
    files = arrows(sources)
    rooms = between_rooms(files)
    python = {folder: python_measures(python_of(texts, folder)) for folder in FOLDERS}
    native = native_measures(texts)
    product = python["radixkv"]["lines"] + native["lines"] + native["fuzz lines"]
    return {
        **python,
        "native": native,
        "structure": {
            "circles of files": circles(files),
            "rooms": len(rooms),
            "arrows between rooms": sum(len(targets) for targets in rooms.values()),
            "arrows back": arrows_back(rooms),
            "test lines a product line": round(python["tests"]["lines"] / product, 2),
            "lines of results": sum(
                len(text.splitlines())
                for path, text in texts.items()
                if path.startswith("bench/results/")
            ),
        },
    }


def python_of(texts: Texts, folder: str) -> Texts:
    """The Python files of a folder that people wrote, those of the kernels left out."""
    return {
        path: text
        for path, text in texts.items()
        if path.startswith(f"{folder}/")
        and path.endswith(".py")
        and not path.startswith(KERNELS)
        and "_pb2" not in path
    }


def python_measures(texts: Texts) -> dict[str, Any]:
    trees = [ast.parse(text) for text in texts.values()]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, Function)]
    lengths = [length(function) for function in functions]
    counts = [parameters(function) for function in functions]
    sizes = [len(text.splitlines()) for text in texts.values()]
    described = [node for tree in trees for node in public(tree)]
    return {
        "files": len(texts),
        "lines": sum(sizes),
        "files over 300 lines": over(300, sizes),
        "longest file": max(sizes),
        "functions": len(functions),
        "function length": spread(lengths),
        "functions over 40 lines": over(40, lengths),
        "parameters": spread(counts),
        "functions over 7 parameters": over(7, counts),
        "docstring lines, %": _percent(
            sum(_lines(_docstring(node)) for node in nodes if isinstance(node, Documented)),
            sum(sizes),
        ),
        "comments, %": _percent(sum(map(comments, texts.values())), sum(sizes)),
        "public names": len(described),
        "public names with a docstring": sum(_docstring(node) is not None for node in described),
        "asserts": sum(isinstance(node, ast.Assert) for node in nodes),
        "test functions": sum(function.name.startswith("test_") for function in functions),
    }


def native_measures(texts: Texts) -> dict[str, Any]:
    native = {
        path: text
        for path, text in texts.items()
        if path.startswith(KERNELS) and path.endswith(NATIVE)
    }
    sizes = [len(text.splitlines()) for path, text in native.items() if "/fuzz/" not in path]
    code = "\n".join(native.values())
    return {
        "files": len(sizes),
        "lines": sum(sizes),
        "median file": int(statistics.median(sizes)),
        "longest file": max(sizes),
        "fuzz lines": sum(len(text.splitlines()) for text in native.values()) - sum(sizes),
        "asserts": len(re.findall(r"^\s*assert\(", code, re.MULTILINE)),
        "static_asserts": len(re.findall(r"^\s*static_assert\(", code, re.MULTILINE)),
    }


def length(function: Function) -> int:
    """Its lines from `def` on, its docstring left out."""
    return _lines(function) - _lines(_docstring(function))


def parameters(function: Function) -> int:
    """How many there are besides self and cls; `*args` is one."""
    given = function.args
    found = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return sum(one is not None and one.arg not in ("self", "cls") for one in found)


def public(node: ast.Module | ast.ClassDef) -> Iterator[Function | ast.ClassDef]:
    """The public classes and functions of a module or class, and those in the classes."""
    for child in node.body:
        if isinstance(child, Function | ast.ClassDef) and not child.name.startswith("_"):
            yield child
            if isinstance(child, ast.ClassDef):
                yield from public(child)


def comments(text: str) -> int:
    return sum(
        token.type == tokenize.COMMENT
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )


def over(bound: int, values: Iterable[int]) -> int:
    return sum(value > bound for value in values)


def spread(values: Sequence[int]) -> dict[str, float]:
    in_order = sorted(values)
    return {
        "median": statistics.median(in_order),
        "90 %": in_order[int(0.9 * len(in_order))],
        "99 %": in_order[int(0.99 * len(in_order))],
        "most": in_order[-1],
    }


def _docstring(node: ast.AST) -> ast.stmt | None:
    if isinstance(node, Documented) and ast.get_docstring(node, clean=False) is not None:
        return node.body[0]
    return None


def _lines(node: ast.stmt | None) -> int:
    if node is None or node.end_lineno is None:
        return 0
    return node.end_lineno - node.lineno + 1


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1)


def table(title: str, found: Mapping[str, Any]) -> Table:
    """One state of the files, a column a folder."""
    shown = Table("", *FOLDERS, title=title, title_justify="left")
    for name, first in found[FOLDERS[0]].items():
        values = [found[folder][name] for folder in FOLDERS]
        label = f"{name}: {' / '.join(first)}" if isinstance(first, dict) else name
        shown.add_row(label, *map(_shown, values))
    return shown


def structure_table(states: Mapping[str, Mapping[str, Any]]) -> Table:
    """What belongs to no folder of Python: native code, rooms, results."""
    shown = Table("", *states, title="Native code, structure, results", title_justify="left")
    for part in ("native", "structure"):
        for name in next(iter(states.values()))[part]:
            values = (found[part][name] for found in states.values())
            label = f"native {name}" if part == "native" else name
            shown.add_row(label, *map(_shown, values))
    return shown


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " / ".join(f"{each:g}" for each in value.values())
    return f"{len(value) if isinstance(value, list) else value:,}"


def main() -> None:
    parser = ArgumentParser(description="measures of the code")
    parser.add_argument("--before", default="37dc8e6", help="the commit to compare with")
    parser.add_argument("--out", type=Path, default=RESULTS / "measures.json")
    args = parser.parse_args()
    states = {"before": measured(committed(args.before)), "after": measured(tracked())}
    path = save("measures", {"compared with": args.before, **states}, args.out)
    console = Console(width=100, record=True)
    for name, found in states.items():
        console.print(table(f"{name} ({args.before})" if name == "before" else name, found))
    console.print(structure_table(states))
    console.save_text(str(path.with_suffix(".txt")))


if __name__ == "__main__":
    main()
