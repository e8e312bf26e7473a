"""What to install is said in one place, and what it says works from a checkout."""

import ast
import re
import tomllib
from pathlib import Path

from radixkv.errors import BackendUnavailableError
from radixkv.extras import missing

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "radixkv").rglob("*.py"))
NAMERS = {"install", "missing"}


def extras_named(source):
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    named = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id in NAMERS)
    return {call.args[-1].value for call in named if isinstance(call.args[-1], ast.Constant)}


def test_what_is_missing_names_the_package_and_the_command():
    error = missing("a report", "jinja2", "lab")
    assert isinstance(error, BackendUnavailableError)
    assert (str(error), error.details) == (
        "a report needs jinja2: pip install '.[lab]' in the checkout of radixkv",
        {"package": "jinja2"},
    )


def test_every_extra_that_is_named_is_one_of_pyproject():
    there = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = set().union(*(extras_named(path.read_text()) for path in SOURCES))
    assert named >= {"lab", "events", "gpu", "torch", "tracing", "transformers"}
    assert named <= set(there)


def test_nothing_is_to_be_installed_from_an_index_that_does_not_have_it():
    texts = {path: path.read_text() for path in [*SOURCES, *(ROOT / "examples").glob("*.py")]}
    assert not [
        str(path) for path, text in texts.items() if re.search("pip install '?radixkv", text)
    ]
