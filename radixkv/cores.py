"""Which core runs: the native one, or the readable one in Python."""

import os
from importlib import import_module
from types import ModuleType
from typing import Any

from radixkv.errors import CoreUnavailableError, InvalidArgumentError


def native_module(core: str | None, name: str) -> ModuleType | None:
    """The module `name` if the native core is to run, None if Python is.

    core: "native", "python", or None: RADIXKV_CORE, else native where it is built.
    Raises InvalidArgumentError for another, CoreUnavailableError where native is wanted and not
    built.
    """
    wanted = core or os.environ.get("RADIXKV_CORE") or None
    if wanted not in (None, "native", "python"):
        raise InvalidArgumentError(
            f'core must be "native", "python" or None; got {wanted!r}', core=wanted
        )
    if wanted == "python":
        return None
    try:
        return import_module(name)
    except ImportError:
        if wanted is None:
            return None
    raise CoreUnavailableError(
        "the native core is not built here: install a C++20 compiler and reinstall, or use "
        'core="python"'
    )


def load(core: str | None, *, native: str, python: str) -> Any:
    """The object that the core that is to run names: "module:name".

    core: see `native_module`, which raises the errors.
    """
    module, name = native.split(":")
    found = native_module(core, module)
    if found is None:
        module, name = python.split(":")
        found = import_module(module)
    return getattr(found, name)
