"""Callers: bearer tokens from a file, three roles, tokens bound to one tenant's salt.

[[token]]
name = "engine-1"       # in logs; what it holds is its own
role = "data"           # data | watch | admin
token = "..."
salt = "tenant-a"       # data only, optional: sees this tenant's prefixes alone
"""

import hashlib
import hmac
import logging
import re
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radixkv.errors import ForbiddenError, InvalidArgumentError, UnauthenticatedError
from radixkv.rpc.method_table import Role, Rpc
from radixkv.tree import Namespace

logger = logging.getLogger(__name__)

_ROLES = ("data", "watch", "admin")
_LOOK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller and what it may do. salt: the one tenant whose prefixes it may see; None: any."""

    name: str
    role: Role
    salt: str | None = None

    def check_rpc(self, rpc: Rpc[Any, Any]) -> None:
        """Raises ForbiddenError unless its role may make this call."""
        if self.role != "admin" and self.role not in rpc.roles:
            raise ForbiddenError(f"a token of role {self.role} may not call {rpc.name}")

    def check_namespace(self, namespace: Namespace) -> None:
        """Raises ForbiddenError for another tenant's namespace, whether it exists or not."""
        if self.salt is not None and namespace.salt != self.salt:
            raise ForbiddenError("the namespace must have the salt of the token; got another")

    def check_unbound(self, what: str) -> None:
        """Raises ForbiddenError if it is bound to one tenant: `what` concerns all of them."""
        if self.salt is not None:
            raise ForbiddenError(f"a token bound to a salt may not {what}")


ANYONE = Principal("", "admin")


class TokenFile:
    """The tokens of a file, read again when it changes; a broken file leaves them as they were.

    Raises InvalidArgumentError for a file that is broken or missing at first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = _stamp(path)
        self._known = _read(path)
        self._looked = time.monotonic()

    def principal(self, metadata: Sequence[tuple[str, str | bytes]]) -> Principal:
        """Whose token a call carries; as slow for each of them. Raises UnauthenticatedError."""
        self._refresh()
        given = next((str(value) for key, value in metadata if key == "authorization"), "")
        kind, _, token = given.partition(" ")
        if kind.lower() != "bearer" or not token:
            raise UnauthenticatedError("the call carries no bearer token")
        digest = _digest(token.strip())
        found = [
            principal for known, principal in self._known if hmac.compare_digest(known, digest)
        ]
        if not found:
            raise UnauthenticatedError("the server does not know this token")
        return found[0]

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        try:
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                self._known = _read(self._path)
                self._stamp = stamp
        except InvalidArgumentError as error:
            logger.error("tokens stay as they were: %s", error)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise InvalidArgumentError(f"tokens file {path}: {error.strerror}") from error
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _read(path: Path) -> list[tuple[bytes, Principal]]:
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("token", [])
    except OSError as error:
        raise InvalidArgumentError(f"tokens file {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        # The wrong text may be a token, so errors show none of it, here and below.
        where = re.search(r"at line \d+", str(error))
        what = f" {where.group()}" if where else ""
        raise InvalidArgumentError(
            f"tokens file {path} must be TOML; got text{what} that is not"
        ) from None
    known = []
    for at, entry in enumerate(entries if isinstance(entries, list) else [None], start=1):
        try:
            known.append((_digest(entry["token"]), _principal(entry)))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InvalidArgumentError(
                f"tokens file {path}: entry {at} must be a [[token]] with a name, a token, a role "
                "of data, watch or admin, and a salt only for data"
            ) from None
    if len({digest for digest, _ in known}) != len(known) or not known:
        raise InvalidArgumentError(
            f"tokens file {path} must have tokens that differ; got none, or one twice"
        )
    return known


def _principal(entry: dict[str, Any]) -> Principal:
    name, role, salt = entry["name"], entry["role"], entry.get("salt")
    if not isinstance(name, str) or role not in _ROLES or not isinstance(salt, str | None):
        raise ValueError
    if not name or (salt is not None and role != "data"):
        raise ValueError
    return Principal(name, role, salt)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
