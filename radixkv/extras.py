"""What a part of radixkv needs besides, and how to install it: said here alone.

radixkv is on no package index yet, so its extras are installed from a checkout.
"""

from radixkv.errors import BackendUnavailableError


def install(extra: str) -> str:
    """The command that installs an extra of pyproject.toml.

    >>> install("lab")
    "pip install '.[lab]' in the checkout of radixkv"
    """
    return f"pip install '.[{extra}]' in the checkout of radixkv"


def missing(what: str, package: str | None, extra: str) -> BackendUnavailableError:
    """The error of `what`, for which `package` is not installed."""
    return BackendUnavailableError(f"{what} needs {package}: {install(extra)}", package=package)
