"""Why no server answered at an address, in words for people."""

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
_UNREACHABLE = ("Connection refused", "No such file or directory")


def is_unreachable(message: str) -> bool:
    """Whether gRPC's text says that no server runs there."""
    return any(text in message for text in _UNREACHABLE)


def why(message: str) -> str:
    """The cause in gRPC's text of a connection that failed; gRPC's own words if unknown."""
    for text, cause in _CAUSES.items():
        if text in message:
            return cause
    return message.partition("last error: ")[2] or message
