"""Runs pytest on native cores built elsewhere: python -m tests.differential.sanitized FOLDER ARGS

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

KERNELS = "radixkv.kernels."
CORES = ("_core", "_router", "_planner")


class CoreFinder:
    """Finds the cores in `folder`, wherever the installed ones are."""

    def __init__(self, folder: Path) -> None:
        self._paths = {KERNELS + core: next(folder.glob(f"{core}.*.so")) for core in CORES}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = self._paths.get(name)
        return importlib.util.spec_from_file_location(name, found) if found else None


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
    folder = Path(sys.argv[1]).resolve()
    sys.meta_path.insert(0, CoreFinder(folder))
    for name in CORES:
        core = importlib.import_module(KERNELS + name)
        assert Path(str(core.__file__)).parent == folder
        assert core.HAS_ASSERTIONS, f"{core.__file__} is built with NDEBUG"
    return pytest.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
