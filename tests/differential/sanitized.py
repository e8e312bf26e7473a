"""Runs pytest on a native core built elsewhere: python -m tests.differential.sanitized FOLDER ARGS

With AddressSanitizer loaded, memory that is lost at the end is an error, but for what NumPy loses
while it is imported.
"""

import ctypes
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

CORE = "radixkv.kernels._core"


class CoreFinder:
    """Finds the core at `path`, wherever the installed one is."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, self._path) if name == CORE else None


@contextmanager
def losses_allowed() -> Iterator[None]:
    process = ctypes.CDLL(None)
    counts_losses = hasattr(process, "__lsan_disable")
    if counts_losses:
        process.__lsan_disable()
    yield
    if counts_losses:
        process.__lsan_enable()


def main() -> int:
    with losses_allowed():
        import numpy.random  # noqa: F401
        import pytest
    (path,) = Path(sys.argv[1]).resolve().glob("_core.*.so")
    sys.meta_path.insert(0, CoreFinder(path))
    assert importlib.import_module(CORE).__file__ == str(path)
    return pytest.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
