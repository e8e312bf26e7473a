"""Lines of text files in any encoding, as UTF-8."""

import codecs
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from radixkv.errors import InvalidArgumentError

# Its number, from 1, and its bytes with the line feed.
Line: TypeAlias = tuple[int, bytes]
# The longer marks first: that of UTF-32 begins like that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8-sig",
}


def as_utf8(path: Path, lines: Iterator[Line], encoding: str | None) -> Iterator[Line]:
    """The lines in UTF-8, without a byte-order mark. `lines` end at the byte of a line feed.

    Raises InvalidArgumentError for an unknown encoding, and for text that is not in the one named.
    """
    first = next(lines, None)
    if first is None:
        return
    found = next((name for mark, name in _MARKS.items() if first[1].startswith(mark)), None)
    if encoding is None and found in (None, "utf-8-sig"):
        yield first[0], first[1].removeprefix(codecs.BOM_UTF8)
        yield from lines
        return
    pieces = chain([first[1]], (text for _, text in lines))
    yield from _decoded(path, pieces, encoding or found or "utf-8")


def _decoded(path: Path, pieces: Iterator[bytes], encoding: str) -> Iterator[Line]:
    try:
        decoder = codecs.getincrementaldecoder(encoding)()
    except LookupError:
        raise InvalidArgumentError(
            f"encoding must be known to Python, such as latin-1; got {encoding!r}",
            encoding=encoding,
        ) from None
    number, rest = 0, ""
    try:
        for piece in chain(pieces, [None]):
            rest += decoder.decode(piece or b"", final=piece is None)
            *whole, rest = rest.split("\n")
            for line in [*whole, rest] if piece is None else whole:
                number += 1
                yield number, line.removeprefix("\ufeff").encode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"{path} is not in {encoding} after line {number}: {error.reason}",
            path=str(path),
            encoding=encoding,
        ) from None
