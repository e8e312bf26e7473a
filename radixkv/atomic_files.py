"""Files and folders that are written whole or not at all."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_DAY_S = 24 * 3600
_BEGUN = ".new-"


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `path` at the end; an error leaves all as it was.

    A pipe or a device is written in place.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()
    partial = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        with partial.open("wb") as file:
            yield file
            sync(file)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def sync(file: BinaryIO) -> None:
    """What was written is on the disk."""
    file.flush()
    os.fsync(file.fileno())


class PartialFolder:
    """A folder on its way to be `target`, locked until it is there.

    What ended processes left next to it is removed.
    """

    def __init__(self, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target.parent)
        begun = Path(tempfile.mkdtemp(prefix=_BEGUN, dir=target.parent))
        self._target = target
        self._lock: int | None = os.open(begun, os.O_RDONLY)
        _lock(self._lock)
        # Only now can others see it, who remove folders that are not locked.
        self.path = begun.rename(target.with_name(f".{target.name}-{begun.name[len(_BEGUN) :]}"))

    def move(self) -> None:
        """Make it the target. Raises OSError where something is there already."""
        assert self._lock is not None
        os.fsync(self._lock)
        self.path.rename(self._target)
        self._unlock()

    def remove(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None


def remove(path: Path) -> None:
    """A file, or a folder with all that is in it; nothing where it is not there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(".*-*"):
        with suppress(OSError):  # somebody else removed it, or moved it to its place
            if _is_abandoned(folder):
                shutil.rmtree(folder)


def _is_abandoned(folder: Path) -> bool:
    """Whether no process has it locked; on file systems without locks, whether it is a day old."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        locked = None if folder.name.startswith(_BEGUN) else _lock(opened)
    finally:
        os.close(opened)
    return time.time() - folder.stat().st_mtime > _DAY_S if locked is None else locked


def _lock(opened: int) -> bool | None:
    """Whether the folder could be locked; None where the file system knows no locks."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
