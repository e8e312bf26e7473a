"""Callers: bearer tokens from a file, three roles, tokens bound to one tenant's salt.

[[token]]
name = "engine-1"       # in logs; what it holds is its own
role = "data"           # data | watch | admin
token = "..."           # or a list of them, while clients change from one to the next
salt = "tenant-a"       # data only, optional: sees this tenant's prefixes alone
leases = 10             # optional limits, see `Quota`: slots leases pins
                        # streams calls picks calls_per_s
"""

import hashlib
import logging
import re
import threading
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from radixkv.errors import ForbiddenError, InvalidArgumentError, UnauthenticatedError
from radixkv.rpc.method_table import Role, Rpc
from radixkv.rpc.quota import TENANT_DEFAULT, UNLIMITED, Quota
from radixkv.tree import Namespace

logger = logging.getLogger(__name__)

_ROLES = ("data", "watch", "admin")
_LIMITS = {each.name for each in fields(Quota)}
_LOOK_EVERY_S = 1.0
_LARGEST_FILE = 16 << 20


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller and what it may do. salt: the one tenant whose prefixes it may see; None: any."""

    name: str
    role: Role
    salt: str | None = None
    quota: Quota = UNLIMITED

    @property
    def is_bound(self) -> bool:
        """Whether it sees one tenant alone, and so nothing that shows what others do."""
        return self.salt is not None

    def check_rpc(self, rpc: Rpc[Any, Any]) -> None:
        """Raises ForbiddenError unless its role may make this call."""
        if self.role != "admin" and self.role not in rpc.roles:
            raise ForbiddenError(f"a token of role {self.role} may not call {rpc.name}")

    def check_namespace(self, namespace: Namespace) -> None:
        """Raises ForbiddenError for another tenant's namespace, whether it exists or not."""
        if self.is_bound and namespace.salt != self.salt:
            raise ForbiddenError("the namespace must have the salt of the token; got another")

    def check_unbound(self, what: str) -> None:
        """Raises ForbiddenError if it is bound to one tenant: `what` concerns all of them."""
        if self.is_bound:
            raise ForbiddenError(f"a token bound to a salt may not {what}")


ANYONE = Principal("", "admin")


class TokenFile:
    """The tokens of a file, read again when it changes; a broken file leaves them as they were.

    Raises InvalidArgumentError for a file that is broken or missing at first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = _stamp(path)
        self._known = _read(path)
        self._looked = time.monotonic()
        self._reading: threading.Thread | None = None

    def principal(self, metadata: Sequence[tuple[str, str | bytes]]) -> Principal:
        """Whose token a call carries. Raises UnauthenticatedError.

        Tokens are compared by their SHA-256, so that the time shows nothing of any.
        """
        if time.monotonic() - self._looked >= _LOOK_EVERY_S:
            self._look()
        given = next((str(value) for key, value in metadata if key == "authorization"), "")
        kind, _, token = given.partition(" ")
        if kind.lower() != "bearer" or not token:
            raise UnauthenticatedError("the call carries no bearer token")
        principal = self._known.get(_digest(token.strip()))
        if principal is None:
            raise UnauthenticatedError("the server does not know this token")
        return principal

    def reload(self) -> None:
        """Read the file at the next call, changed or not. A signal handler may call it."""
        self._stamp, self._looked = None, -_LOOK_EVERY_S

    def _look(self) -> None:
        """Read a file that changed, in a thread: the caller is the event loop."""
        self._looked = time.monotonic()
        if self._reading is None or not self._reading.is_alive():
            self._reading = threading.Thread(target=self._refresh, name="radixkv-tokens")
            self._reading.daemon = True
            self._reading.start()

    def _refresh(self) -> None:
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


def _read(path: Path) -> dict[bytes, Principal]:
    """Principals by the digests of their tokens."""
    # The wrong text may be a token, so errors show none of it, here and below.
    known: dict[bytes, Principal] = {}
    names: set[str] = set()
    for at, entry in enumerate(_entries(path), start=1):
        try:
            principal, tokens = _principal(entry), _tokens(entry)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InvalidArgumentError(
                f"tokens file {path}: entry {at} must be a [[token]] with a name, a token, a role "
                "of data, watch or admin, and a salt only for data; limits must be 1 or more"
            ) from None
        if principal.name in names:
            raise InvalidArgumentError(f"tokens file {path}: names must differ; got one twice")
        names.add(principal.name)
        if any(token in known for token in tokens):
            raise InvalidArgumentError(f"tokens file {path}: tokens must differ; got one twice")
        known |= dict.fromkeys(tokens, principal)
    if not known:
        raise InvalidArgumentError(f"tokens file {path} must have a [[token]]; got none")
    return known


def _entries(path: Path) -> list[Any]:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
        if len(data) > _LARGEST_FILE:
            raise InvalidArgumentError(
                f"tokens file {path} must be at most {_LARGEST_FILE} bytes; got more"
            )
        entries = tomllib.loads(data.decode("utf-8")).get("token", [])
    except OSError as error:
        raise InvalidArgumentError(f"tokens file {path}: {error.strerror}") from error
    except InvalidArgumentError:
        raise
    except (ValueError, RecursionError) as error:
        where = re.search(r"at line \d+", str(error))
        what = f" {where.group()}" if where else ""
        raise InvalidArgumentError(
            f"tokens file {path} must be TOML; got text{what} that is not"
        ) from None
    return entries if isinstance(entries, list) else [None]


def _principal(entry: dict[str, Any]) -> Principal:
    name, role, salt = entry["name"], entry["role"], entry.get("salt")
    if not isinstance(name, str) or role not in _ROLES or not isinstance(salt, str | None):
        raise ValueError
    if not name or (salt is not None and role != "data"):
        raise ValueError
    quota = UNLIMITED if salt is None else TENANT_DEFAULT
    given = {name: entry[name] for name in _LIMITS if name in entry}
    return Principal(name, role, salt, replace(quota, **given))


def _tokens(entry: dict[str, Any]) -> set[bytes]:
    """The digests of an entry's tokens; a token with spaces around it would never match."""
    given = entry["token"]
    tokens = given if isinstance(given, list) else [given]
    if not tokens or any(token != token.strip() or not token for token in tokens):
        raise ValueError
    return set(map(_digest, tokens))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
