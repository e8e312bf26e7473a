import re
from importlib import metadata
from pathlib import Path

import radixkv

ROOT = Path(__file__).parents[2]
HEADINGS = re.findall(
    r"^## \[(.+?)\](?: - (.+))?$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
)


def test_unreleased_stands_on_top_and_releases_have_dates():
    assert HEADINGS[0] == ("Unreleased", "")
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for _, date in HEADINGS[1:])


def test_the_version_is_the_last_release_or_is_being_developed():
    released = [version for version, _ in HEADINGS[1:]]
    version, is_development, _ = radixkv.__version__.partition(".dev")
    if is_development:
        assert version not in released
    else:
        assert version == released[0]


def test_the_installed_version_is_that_of_the_code():
    assert metadata.version("radixkv") == radixkv.__version__
