"""Shares from a TOML file: a [[share]] with a salt, a reserve and a cap, each but one optional.

[[share]]
salt = "tenant-a"    # left out: the namespaces without a salt
reserve = 600        # tokens
cap = 600
"""

import tomllib
from pathlib import Path
from typing import Any

from radixkv.errors import InvalidArgumentError
from radixkv.tree.shares import Share

_KEYS = {"salt", "reserve", "cap"}


def read_shares(path: Path) -> dict[str | None, Share]:
    """The shares of a file. Raises InvalidArgumentError naming the file and what is wrong."""
    shares: dict[str | None, Share] = {}
    for at, entry in enumerate(_entries(path), start=1):
        where = f"shares file {path}: entry {at}"
        if not isinstance(entry, dict) or not _KEYS.issuperset(entry) or len(entry) < 1:
            raise InvalidArgumentError(
                f"{where} must be a [[share]] with salt, reserve or cap; got {entry!r}"
            )
        salt = entry.pop("salt", None)
        if not isinstance(salt, str | None):
            raise InvalidArgumentError(f"{where}: salt must be a string; got {salt!r}")
        if salt in shares:
            raise InvalidArgumentError(f"{where}: salts must differ; got {salt!r} twice")
        try:
            shares[salt] = Share(**entry)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{where}: {error}", **error.details) from None
    return shares


def _entries(path: Path) -> list[Any]:
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("share", [])
    except OSError as error:
        raise InvalidArgumentError(f"shares file {path}: {error.strerror}") from error
    except ValueError:
        raise InvalidArgumentError(f"shares file {path} must be TOML; got other text") from None
    if not isinstance(entries, list) or not entries:
        raise InvalidArgumentError(f"shares file {path} must have a [[share]]; got none")
    return entries
