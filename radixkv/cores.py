"""Which core runs: the native one, or the readable one in Python."""

import os
from importlib import import_module
from typing import Any

from radixkv.errors import CoreUnavailableError, InvalidArgumentError


def load(core: str | None, *, native: str, python: str) -> Any:
    """The object "module:name" of the core that is to run.

    core: "native", "python", or None: RADIXKV_CORE if it is set, else native where it is built.
    Raises InvalidArgumentError for another, CoreUnavailableError if native is asked for and not
    built.
    """
    wanted = (os.environ.get("RADIXKV_CORE") or None) if core is None else core
    if not isinstance(wanted, str | None) or wanted not in (None, "native", "python"):
        raise InvalidArgumentError(
            f'core must be "native", "python" or None; got {wanted!r}', core=wanted
        )
    if wanted == "python":
        return _named(python)
    try:
        return _named(native)
    except ImportError as error:
        if wanted == "native":
            raise CoreUnavailableError(
                "the native core is not built here: install a C++20 compiler and reinstall, or use "
                'core="python"'
            ) from error
    return _named(python)


def _named(place: str) -> Any:
    module, name = place.split(":")
    return getattr(import_module(module), name)
