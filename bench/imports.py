"""Which file of the package imports which, read from the sources: arrows, circles, rooms.

An import counts wherever it stands: at the top, late in a function, under `if TYPE_CHECKING`, or as
the text that `import_module` and the functions of `radixkv.cores` take. A reader has to follow each
of them, whenever it runs.
"""

import ast
from collections.abc import Iterator, Mapping
from itertools import permutations
from pathlib import Path, PurePosixPath

PACKAGE = "radixkv"
IMPORTERS = {"import_module", "load"}
"""Functions that import the module which a text names: "radixkv.room.file", or with ":Name"."""
GENERATED = f"{PACKAGE}/v1/"

Sources = Mapping[str, str]
"""The text of each file, by its path from the project's root."""
Arrows = Mapping[str, set[str]]
"""What each one imports."""


def read_sources(root: Path) -> dict[str, str]:
    """The package's Python files, the generated ones left out."""
    files = [path.relative_to(root) for path in (root / PACKAGE).rglob("*.py")]
    return sources_of({str(path): (root / path).read_text("utf-8") for path in files})


def sources_of(texts: Sources) -> dict[str, str]:
    """The package's files among `texts`. In earlier commits kernels/ held Python files that were
    imported as radixkv.kernels, through a link."""
    found = {}
    for path, text in texts.items():
        placed = f"{PACKAGE}/{path}" if path.startswith("kernels/") else path
        if placed.startswith(f"{PACKAGE}/") and not placed.startswith(GENERATED):
            found[placed] = text
    return found


def module_of(path: str) -> str:
    """The dotted name of a file: radixkv/tree/__init__.py is radixkv.tree."""
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(path: str) -> str:
    """The folder or the file directly under radixkv/; `radixkv` for its own `__init__`."""
    parts = PurePosixPath(path).with_suffix("").parts
    return PACKAGE if parts[1] == "__init__" else parts[1]


def imported(path: str, source: str) -> Iterator[tuple[str, str]]:
    """Every import of a file: the module, and what is taken from it ("" for the module itself)."""
    package = module_of(path).split(".")
    if PurePosixPath(path).name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((name.name, "") for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            yield from ((module, name.name) for name in node.names)
        elif isinstance(node, ast.Call) and called(node) in IMPORTERS:
            yield from _named_in_text(node)


def called(call: ast.Call) -> str:
    """The last name of what is called: `import_module` of `importlib.import_module(...)`."""
    return ast.unparse(call.func).rpartition(".")[2]


def arrows(sources: Sources) -> dict[str, set[str]]:
    """Of each file the files that it imports. A package's `__init__` counts where it is named,
    and not for each import of a module below it."""
    files = {module_of(path): path for path in sources}
    found: dict[str, set[str]] = {path: set() for path in sources}
    for path, source in sources.items():
        for module, name in imported(path, source):
            target = files.get(f"{module}.{name}") or files.get(module)
            if target is not None and target != path:
                found[path].add(target)
    return found


def between_rooms(files: Arrows) -> dict[str, set[str]]:
    """The arrows of files as arrows of their rooms."""
    rooms: dict[str, set[str]] = {room_of(path): set() for path in files}
    for path, targets in files.items():
        rooms[room_of(path)] |= {room_of(target) for target in targets} - {room_of(path)}
    return rooms


def circles(graph: Arrows) -> list[list[str]]:
    """Each set of names that all reach one another, sorted."""
    reached = {name: _reach(graph, name) for name in graph}
    found = {
        frozenset(other for other in reached[name] if name in reached[other]) for name in graph
    }
    return sorted(sorted(circle) for circle in found if len(circle) > 1)


def arrows_back(graph: Arrows) -> int:
    """How many arrows, at the least, run against every order in which the names could stand."""
    return sum(
        min(_against(graph, order) for order in permutations(circle)) for circle in circles(graph)
    )


def _named_in_text(call: ast.Call) -> Iterator[tuple[str, str]]:
    for value in [*call.args, *(keyword.value for keyword in call.keywords)]:
        if isinstance(value, ast.Constant) and str(value.value).startswith(f"{PACKAGE}."):
            module, _, name = str(value.value).partition(":")
            yield module, name


def _reach(graph: Arrows, start: str) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for target in graph[waiting.pop()] - reached:
            reached.add(target)
            waiting.append(target)
    return reached


def _against(graph: Arrows, order: tuple[str, ...]) -> int:
    """Arrows from an earlier name to a later one, where the later are to know the earlier."""
    return sum(later in graph[name] for at, name in enumerate(order) for later in order[at + 1 :])
