"""Addresses that clients call, and why no server answered there, in words for people."""

import re

from radixkv.errors import InvalidArgumentError

# Of gRPC's own names for addresses, those that need no port.
_SCHEMES = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:", "vsock:", "xds:")
_HOST_AND_PORT = re.compile(r"(\[[^\]]+\]|[^:/\s]+):(\d{1,5})")

# What is in gRPC's text, and what it means here.
_CAUSES = {
    "Connection refused": "connection refused",
    "No such file or directory": "no such socket",
    "Permission denied": "permission denied",
    "DNS resolution failed": "no such host",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not signed by the CA that was named",
    "Hostname Verification Check failed": "its certificate is for another host",
    "WRONG_VERSION_NUMBER": "it takes calls without TLS",
    "Socket closed": "it closed the connection; does it take TLS?",
}
_NOBODY_LISTENS = ("Connection refused", "No such file or directory")


def check_target(target: str) -> None:
    """Raises InvalidArgumentError unless it is the address of a server."""
    found = _HOST_AND_PORT.fullmatch(target)
    is_address = found is not None and int(found[2]) <= 65_535
    is_name = target.startswith(_SCHEMES) and target.isprintable()
    if not is_name and not (is_address and target.isprintable()):
        raise InvalidArgumentError(
            f"target must be host:port, as in 127.0.0.1:50051, or unix:/path; got {target!r}",
            target=target,
        )


def nobody_listens(message: str) -> bool:
    """Whether gRPC's text says that no server runs there."""
    return any(text in message for text in _NOBODY_LISTENS)


def why(message: str) -> str:
    """The cause in gRPC's text of a connection that failed; gRPC's own words if unknown."""
    for text, cause in _CAUSES.items():
        if text in message:
            return cause
    return message.partition("last error: ")[2] or message
