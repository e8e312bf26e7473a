"""A page for each room that exports names, made from their docstrings by mkdocstrings."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = (
    "radixkv",
    "radixkv.tree",
    "radixkv.memory",
    "radixkv.attention",
    "radixkv.service",
    "radixkv.router",
    "radixkv.prompts",
    "radixkv.integrations.transformers",
    "radixkv.integrations.events",
    "radixkv.errors",
)


def pages() -> dict[str, str]:
    """The text of each page by its path, and one that lists them."""
    listed = "".join(f"- [`{room}`]({room}.md)\n" for room in ROOMS)
    made = {"reference/python/index.md": f"# Python\n\n{listed}"}
    return made | {f"reference/python/{room}.md": page(room) for room in ROOMS}


def page(room: str) -> str:
    parts = [f"# {room}\n", *(f"::: {room}.{name}\n" for name in exported(room))]
    if room == "radixkv.service":
        for client, calls in CALLS.items():
            parts.append(f"## The calls of `{client}` and `Async{client}`\n")
            parts += [
                f"::: {call}\n    options:\n      heading_level: 3\n" for call in built(calls)
            ]
    return "\n".join(parts)


BELOW = "    options:\n      heading_level: 3\n"
# Where methods of the clients are made of functions, as `match = blocking(calls.match)`.
CLIENTS = "radixkv/service/client"
CALLS = {"Client": "clients.py", "Lease": "lease.py", "RouterClient": "router_clients.py"}


def built(file: str) -> list[str]:
    """The functions of which a file of clients makes methods."""
    text = (ROOT / CLIENTS / file).read_text("utf-8")
    names = re.findall(r"= blocking(?:_under)?\((\w+\.\w+)\)", text)
    return [f"{CLIENTS.replace('/', '.')}.{name}" for name in names]


def exported(room: str) -> list[str]:
    """The names of `__all__`; of a file without one, its public classes. Imports nothing."""
    path = ROOT / room.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    body = ast.parse(source.read_text("utf-8")).body
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if not name.startswith("__")]
    return [node.name for node in body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]
