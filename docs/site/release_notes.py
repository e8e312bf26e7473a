"""What CHANGELOG.md says of a version: `python docs/site/release_notes.py 0.1.0`.

Without a version, of what is not released.
"""

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"


def release_notes(version: str = "Unreleased", changelog: str | None = None) -> str:
    """The section of that version, without its heading. Raises SystemExit for an unknown one."""
    text = CHANGELOG.read_text("utf-8") if changelog is None else changelog
    heading = rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## \[|\Z)"
    found = re.search(heading, text, re.DOTALL | re.MULTILINE)
    if found is None:
        sys.exit(f"version must be one of CHANGELOG.md; got {version}")
    return found[1].strip() + "\n"


if __name__ == "__main__":
    print(release_notes(*sys.argv[1:]), end="")
