"""The Python of README and docs passes mypy --strict, as a reader's own code would."""

import ast
import builtins
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# docs/extending.md shows files of the project, which are typed where they stand.
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if page.name != "extending.md" and "```python" in page.read_text("utf-8")
]
KNOWN = {*dir(builtins)}


def free_names(source):
    """What a snippet takes from around it: names that it reads and never binds."""
    nodes = list(ast.walk(ast.parse(source)))
    read = {node.id for node in nodes if isinstance(node, ast.Name)}
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and not_read(node)}
    imported = {alias.asname or alias.name for node in nodes for alias in aliases_of(node)}
    return sorted(read - bound - imported - KNOWN)


def not_read(name):
    return not isinstance(name.ctx, ast.Load)


def aliases_of(node):
    return node.names if isinstance(node, ast.Import | ast.ImportFrom) else ()


def module_of(page):
    """The snippets of a page, one below the other; what they take from elsewhere is Any."""
    snippets = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.M)
    source = "\n".join(snippets)
    given = "".join(f"{name}: Any\n" for name in free_names(source))
    return f"from typing import Any\n{given}{source}"


def test_what_a_snippet_takes_from_around_it():
    assert free_names("import os\nx = y.z\nprint(os, [a for a in b])") == ["b", "y"]


def test_the_snippets_of_each_page_pass_mypy(tmp_path):
    files = []
    for page in PAGES:
        files.append(tmp_path / f"{page.stem.lower()}_snippets.py")
        files[-1].write_text(module_of(page))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ROOT / ".mypy_cache", *files],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
