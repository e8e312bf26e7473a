"""Addresses: what clients call, and where a server listens.

Loopback and unix sockets are safe to listen on, anything else must be allowed.
"""

import errno
import os
import re
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from radixkv.errors import InvalidArgumentError, ListenError

# Of gRPC's own names for addresses, those that need no port.
_SCHEMES = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:", "vsock:", "xds:")
_HOST_AND_PORT = re.compile(r"(\[[^\]]+\]|[^:/\s]+):(\d{1,5})")


def check_target(target: str) -> None:
    """Raises InvalidArgumentError unless it is the address of a server."""
    if not isinstance(target, str) or not target.isprintable() or not _is_address(target):
        raise InvalidArgumentError(
            f"target must be host:port, as in 127.0.0.1:50051, or unix:/path; got {target!r}",
            target=target,
        )


def _is_address(target: str) -> bool:
    found = _HOST_AND_PORT.fullmatch(target)
    return target.startswith(_SCHEMES) or (found is not None and int(found[2]) <= 65_535)


def check_address(address: str, *, insecure: bool) -> None:
    """Raises ListenError for an address that is malformed, or not local without `insecure`."""
    if not address.isprintable():
        raise _refusal(ascii(address), "it must be printable")
    if address.startswith("unix:"):
        return
    host, _, port = address.rpartition(":")
    # gRPC would take a larger port modulo 2**16.
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise _refusal(address, "it must be host:port or unix:path")
    if not insecure and not is_local(address):
        raise _refusal(
            address,
            "it is open to the network, without encryption; give it TLS (--tls-cert FILE "
            "--tls-key FILE; in Python `tls`), or allow that (--insecure; in Python `insecure`)",
        )


def listen(server: Any, address: str, credentials: Any = None) -> str:
    """Bind a gRPC server and return the address that clients take, a port of 0 filled in.

    A unix socket is open to this user only, and so is its folder where it is made here.
    Raises ListenError for an address that is taken or not of this machine.
    """
    if address.startswith("unix:"):
        return _listen_unix(server, address, credentials)
    return f"{address.rpartition(':')[0]}:{_bind(server, address, credentials)}"


def is_local(address: str) -> bool:
    """Whether only this machine can reach the address."""
    host = address.rpartition(":")[0].strip("[]")
    if address.startswith("unix:") or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _listen_unix(server: Any, address: str, credentials: Any) -> str:
    path = Path(address.removeprefix("unix:"))
    try:
        # gRPC unlinks what is there, a socket that another server listens on included.
        if path.exists() and (not path.is_socket() or _is_answered(path)):
            raise _refusal(address, "the path is taken")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _refusal(address, str(error)) from error
    _bind(server, address, credentials)
    os.chmod(path, 0o600)
    return address


def _is_answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        # A server whose queue of connections is full would let this wait forever.
        probe.setblocking(False)
        return probe.connect_ex(str(path)) in (0, errno.EAGAIN)


def _bind(server: Any, address: str, credentials: Any) -> int:
    try:
        if credentials is not None:
            return int(server.add_secure_port(address, credentials))
        port: int = server.add_insecure_port(address)
    except RuntimeError as error:
        raise _refusal(address, "it is taken, or not an address of this machine") from error
    return port


def _refusal(address: str, why: str) -> ListenError:
    return ListenError(f"cannot listen on {address}: {why}", address=address)
