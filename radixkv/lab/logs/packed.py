"""Files that may be packed with xz, gzip or zstandard, read line by line."""

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from radixkv.atomic_files import replacing
from radixkv.errors import InvalidArgumentError, InvalidLogError
from radixkv.extras import missing
from radixkv.lab.logs.requests import Progress

_MAGIC = {b"\xfd7zXZ\x00": "xz", b"\x1f\x8b": "gz", b"\x28\xb5\x2f\xfd": "zst"}
_BROKEN = (EOFError, OSError, lzma.LZMAError, zlib.error)


def read_packed(path: Path) -> bytes:
    """All that is in the file, unpacked. Raises InvalidLogError."""
    return b"".join(line for _, line in read_lines(path))


def read_lines(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, bytes]]:
    """The lines and their numbers, from 1; `progress` receives the bytes of the file read so far.

    Raises InvalidLogError for what cannot be opened and, after the lines before it, for what cannot
    be unpacked.
    """
    at = 0
    try:
        with path.open("rb") as file, _unpacked(file) as lines:
            for at, line in enumerate(lines, start=1):
                if progress is not None:
                    progress(file.tell())
                yield at, line
    except FileNotFoundError:
        raise InvalidLogError(f"{path} does not exist", path=str(path)) from None
    except Exception as error:
        if not isinstance(error, _BROKEN) and type(error).__name__ != "ZstdError":
            raise
        raise _broken(path, at, error) from error


def _broken(path: Path, line: int, error: Exception) -> InvalidLogError:
    if isinstance(error, EOFError):
        what = f"the file is cut: its packed data ends inside line {line + 1}"
    else:
        what = f"it cannot be read after line {line}: {error}"
    return InvalidLogError(f"{path}: {what}", path=str(path), line=line + 1, is_cut=True)


def _unpacked(file: BinaryIO) -> IO[bytes]:
    start = file.read(6)
    file.seek(0)
    kind = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
    if kind == "xz":
        return lzma.open(file)
    if kind == "gz":
        return cast(IO[bytes], gzip.open(file))
    return cast(IO[bytes], zstd().open(file)) if kind == "zst" else file


def zstd() -> Any:
    """The module that reads and writes .zst. Raises BackendUnavailableError."""
    for name in ("compression.zstd", "backports.zstd"):  # the first since Python 3.14
        with suppress(ImportError):
            return import_module(name)
    raise missing("a .zst file", "backports.zstd", "lab")


def write_packed(path: Path, lines: Iterable[bytes]) -> None:
    """Write the lines, packed as the name ends (.xz, .gz, .zst).

    What the file held stays until all of them are written. Raises InvalidArgumentError,
    BackendUnavailableError.
    """
    pack = _packer(path.suffix)
    try:
        with replacing(path) as file, pack(file) as packed:
            packed.writelines(lines)
    except OSError as error:
        raise InvalidArgumentError(
            f"{path} cannot be written: {error.strerror}", path=str(path)
        ) from error


def _packer(suffix: str) -> Callable[[BinaryIO], AbstractContextManager[IO[bytes]]]:
    if suffix == ".xz":
        return lambda file: lzma.open(file, "wb")
    if suffix == ".gz":  # without a name and a time, so that the same lines make the same file
        return lambda file: cast(IO[bytes], gzip.GzipFile("", "wb", fileobj=file, mtime=0))
    if suffix == ".zst":
        module = zstd()
        return lambda file: cast(IO[bytes], module.open(file, "wb"))
    return nullcontext
