"""The files of a log: one or many, by name, by pattern, or from standard input."""

import glob
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from radixkv.errors import InvalidLogError

STDIN = "-"


@contextmanager
def opened(names: Iterable[str | Path]) -> Iterator[list[Path]]:
    """The files, in the order given, those of one pattern by name; `-` is a copy of the input.

    Raises InvalidLogError for what is not a file.
    """
    with NamedTemporaryFile(prefix="stdin-", suffix=".log") as copy:
        yield [path for name in names for path in _files(str(name), Path(copy.name))]


def _files(name: str, copy: Path) -> list[Path]:
    if name == STDIN:
        with copy.open("wb") as out:
            while piece := sys.stdin.buffer.read(2**20):
                out.write(piece)
        return [copy]
    path = Path(name)
    if path.is_file():
        return [path]
    found = [each for each in map(Path, sorted(glob.glob(name, recursive=True))) if each.is_file()]
    if not found:
        what = "matches no file" if glob.has_magic(name) else "is not a file"
        raise InvalidLogError(f"{name} {what}", path=name)
    return found
