"""The rows of a log's file, JSON objects or CSV, each checked where it stands."""

import csv
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from radixkv.errors import InvalidLogError
from radixkv.lab.logs.fields import FieldError, Row
from radixkv.lab.logs.formats.lengths import LENGTHS
from radixkv.lab.logs.packed import read_lines
from radixkv.lab.logs.requests import Progress

Line: TypeAlias = tuple[int, bytes]
_SHOWN_BAD = 5
_BOM = b"\xef\xbb\xbf"


class Rows:
    """The rows of a file with the numbers of their lines; blank lines are not rows.

    skip_bad: bad rows are counted and left out, and the part of a cut file that is there is all.
    progress: receives the bytes of the file that were read so far.
    """

    def __init__(self, path: Path, *, skip_bad: bool, progress: Progress | None) -> None:
        self.path, self.skip_bad, self._progress = path, skip_bad, progress
        self.skipped, self.is_cut = 0, False
        self.first_bad: list[str] = []
        self._lines = self._read()
        first = next(self._lines, None)
        self._header = _csv_header(first[1]) if first else None
        if first and self._header is None:
            self._lines = chain([first], self._lines)

    def __iter__(self) -> Iterator[tuple[int, Row]]:
        for line, content in self._lines:
            try:
                yield line, self._row(content)
            except FieldError as error:
                self.bad(line, error)

    def bad(self, line: int, error: FieldError) -> None:
        """The row of this line cannot be read: raises InvalidLogError, or counts it."""
        message = f"line {line}: {error.problem}"
        if not self.skip_bad:
            raise InvalidLogError(
                f"{self.path}, {message}", path=str(self.path), line=line, field=error.field
            )
        self.skipped += 1
        if len(self.first_bad) < _SHOWN_BAD:
            self.first_bad.append(message)

    def _read(self) -> Iterator[Line]:
        try:
            for line, content in read_lines(self.path, self._progress):
                if content := content.removeprefix(_BOM).strip():
                    yield line, content
        except InvalidLogError as error:
            if not self.skip_bad or "line" not in error.details:
                raise
            self.is_cut = True

    def _row(self, content: bytes) -> Row:
        return _json_row(content) if self._header is None else _csv_row(self._header, content)


def _json_row(content: bytes) -> Row:
    try:
        row = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FieldError("", f"it is not a JSON object: {error}") from None
    if not isinstance(row, dict):
        raise FieldError("", f"it must be a JSON object; got a {type(row).__name__}")
    return row


def _csv_header(content: bytes) -> list[str] | None:
    if content.startswith(b"{"):
        return None
    try:
        names = [name.strip() for name in _cells(content)]
    except FieldError:
        return None
    return names if set(names) & set(LENGTHS) else None


def _csv_row(header: list[str], content: bytes) -> Row:
    cells = _cells(content)
    if len(cells) != len(header):
        raise FieldError(
            "", f"it must have {len(header)} cells, as the header has; got {len(cells)}"
        )
    return dict(zip(header, cells, strict=True))


def _cells(content: bytes) -> list[str]:
    try:
        return next(csv.reader([content.decode()]), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise FieldError("", f"it is not a line of a CSV: {error}") from None
