"""What the site of documentation has besides its pages; `make docs` builds it."""

import importlib
import re
from pathlib import Path

import pytest

from docs.site import proto_reference, python_reference

ROOT = Path(__file__).parents[2]


def test_every_call_message_field_and_value_of_the_protocol_is_described():
    page = proto_reference.page()
    for file in proto_reference.files():
        parts = [*file.service, *file.message_type, *file.enum_type]
        assert all(f"### {part.name}\n\n" in page for part in parts)
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", page, re.MULTILINE)
    assert len(rows) > 200
    assert [name for name, said in rows if not said] == []


@pytest.mark.parametrize("room", python_reference.ROOMS)
def test_every_exported_name_has_its_place_in_the_reference(room):
    module = importlib.import_module(room)
    page = python_reference.pages()[f"reference/python/{room}.md"]
    listed = re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    exported = getattr(module, "__all__", [name for name in vars(module) if "Error" in name])
    calls = {name for name in listed if ".client." in name}
    wanted = {f"{room}.{name}" for name in exported if not name.startswith("__")}
    assert wanted | calls == set(listed)
    assert len(calls) == (22 if room == "radixkv.service" else 0)


def test_every_room_that_exports_names_has_a_page():
    inits = (ROOT / "radixkv").rglob("__init__.py")
    rooms = {
        path.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for path in inits
        if "__all__" in path.read_text("utf-8")
    }
    assert rooms - set(python_reference.ROOMS) == set(WITHOUT_A_PAGE)


WITHOUT_A_PAGE = {
    "radixkv.cache": "radixkv exports its names",
    "radixkv.demo": "a command",
    "radixkv.integrations.sglang": "SGLang loads it by its entry point",
    "radixkv.service.server.handlers": "for the server alone",
}


def test_every_page_is_in_the_navigation_and_in_the_index():
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("nav:")[2]
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert f": {page.name}\n" in nav
        assert f"({page.name})" in index or page.name == "index.md"


def test_links_lead_where_they_did_and_those_to_no_page_lose_theirs():
    hooks = pytest.importorskip("docs.site.hooks", reason="make docs installs mkdocs")
    links = {
        "[a](docs/gpu.md#limits)": "[a](gpu.md#limits)",
        "[`b`](CONTRIBUTING.md)": "[`b`](contributing.md)",
        "[c](bench/results/tree.txt)": "c",
        "[d](https://example.org)": "[d](https://example.org)",
    }
    assert {text: hooks.relinked(text, "README.md", "index.md") for text in links} == links
