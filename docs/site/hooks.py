"""What mkdocs shows besides the pages of docs/: README, other documents, references.

mkdocs calls the functions that begin with `on_`.
"""

import re
import sys
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # mkdocs loads this file alone

from docs.site import proto_reference, python_reference  # noqa: E402

LINK = re.compile(r"\[((?:[^][]|\[[^]]*\])*)\]\((?!\w+:|#)([^)#\s]*)(#[\w-]+)?\)")
IMAGE = re.compile(r'(src|srcset)="(?:docs/)?(images/)')
# Documents beside docs/, and their pages.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "bench/README.md": "bench.md",
}


def on_config(config: Any) -> None:
    """The last section gets the pages that are made of docstrings."""
    (reference,) = config.nav[-1].values()
    reference.insert(0, {"Python": [*python_reference.pages()]})


def on_files(files: Files, config: Any) -> Files:
    pages = {page: page_of(path) for path, page in PAGES.items()}
    pages |= python_reference.pages()
    pages["reference/proto.md"] = proto_reference.page()
    for path, text in pages.items():
        if (there := files.get_file_from_path(path)) is not None:
            files.remove(there)
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """The pages of docs/ link to files of the repository, which the site does not have."""
    if page.file.generated_by is None:
        markdown = relinked(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)
    # HTML is as it will be served: each page in a folder of its own.
    return IMAGE.sub(rf'\1="{"" if page.is_homepage else "../"}\2', markdown)


def page_of(path: str) -> str:
    return relinked((ROOT / path).read_text("utf-8"), path, PAGES[path])


def relinked(text: str, path: str, page: str) -> str:
    """The links of a file of the repository, as its page needs them; what is no page loses its."""

    def relink(found: re.Match[str]) -> str:
        label, target, anchor = found.groups()
        where = normpath(f"{Path(path).parent.as_posix()}/{target}")
        if where in PAGES:
            where = f"docs/{PAGES[where]}"
        if not where.startswith("docs/"):
            return str(label)
        link = relpath(where.removeprefix("docs/"), Path(page).parent.as_posix())
        return f"[{label}]({link}{anchor or ''})"

    return LINK.sub(relink, text)
