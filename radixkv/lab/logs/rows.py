"""The rows of a log's files, JSON or CSV, each checked where it stands.

JSON    an object a line; objects one after another, over several lines; an array of objects
CSV     a header and rows, separated by commas, semicolons, tabs or bars
"""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from radixkv.errors import InvalidLogError
from radixkv.lab.logs.json_values import Read, not_an_object, objects_in, values_of
from radixkv.lab.logs.packed import read_lines
from radixkv.lab.logs.requests import Progress
from radixkv.lab.logs.text_lines import Line, as_utf8
from radixkv.prompts.fields import FieldError, Row

_SHOWN_BAD = 5
_LONGEST_CELL = 2**31 - 1  # Python's own limit would refuse long prompts
_DELIMITERS = (",", ";", "\t", "|")


class LinePlace(NamedTuple):
    """A row: its file, the number of its line from 1, and the bytes of its line."""

    path: Path
    line: int
    size: int = 0


class Rows:
    """The rows of some files; blank lines are not rows.

    skip_bad: bad rows are counted and left out, and the part of a cut file that is there is all.
    encoding: of the text; None: UTF-8, or UTF-16 or 32 with its mark.
    progress: receives the bytes of the files that were read so far.
    bytes_read, bytes_skipped: of all rows, and of bad ones. reasons: bad rows by what is wrong.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        skip_bad: bool,
        encoding: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.paths, self.skip_bad = paths, skip_bad
        self._encoding, self._progress = encoding, progress
        self.is_cut = False
        self.reasons: Counter[str] = Counter()
        self._bad: list[tuple[int, int, str]] = []
        self.bytes_read = self.bytes_skipped = 0
        self.columns: list[str] = []

    @property
    def name(self) -> str:
        """The files, for people."""
        more = len(self.paths) - 1
        return f"{self.paths[0]}" + (f" and {more} more" if more else "")

    @property
    def first_bad(self) -> list[str]:
        """What is wrong with the first few bad rows."""
        return [message for *_, message in self._bad]

    @property
    def skipped(self) -> int:
        return self.reasons.total()

    def __iter__(self) -> Iterator[tuple[LinePlace, Row]]:
        for path in self.paths:
            for line, size, row in self._rows_of(path):
                place = LinePlace(path, line, size)
                self.bytes_read += size
                if isinstance(row, FieldError):
                    self.bad(place, row)
                else:
                    yield place, row

    def bad(self, place: LinePlace, error: FieldError) -> None:
        """The row here cannot be read: raises InvalidLogError, or counts it."""
        message = f"line {place.line}: {error.problem}"
        if not self.skip_bad:
            raise InvalidLogError(
                f"{place.path}, {message}",
                path=str(place.path),
                line=place.line,
                field=error.field,
            )
        self.reasons[error.reason] += 1
        self.bytes_skipped += place.size
        # Rows that cannot be parsed are found before those of the same batch that cannot be read.
        self._bad.append((self.paths.index(place.path), place.line, message))
        self._bad = sorted(self._bad)[:_SHOWN_BAD]

    def _rows_of(self, path: Path) -> Iterator[Read]:
        lines = self._lines_of(path)
        first = next(lines, None)
        if first is None:
            return
        lines = chain([first], lines)
        start = first[1].strip()
        if start.startswith(b"[") or start == b"{":
            yield from values_of(lines)
        elif start.startswith(b"{"):
            for line, text in lines:
                yield from ((line, len(text), each) for each in _json_rows(text))
        else:
            yield from self._csv_rows(path, lines)

    def _lines_of(self, path: Path) -> Iterator[Line]:
        """Lines that are not blank, in UTF-8."""
        try:
            for line, text in as_utf8(path, read_lines(path, self._progress), self._encoding):
                if text.strip():
                    yield line, text
        except InvalidLogError as error:
            if not self.skip_bad or "line" not in error.details:
                raise
            self.is_cut = True

    def _csv_rows(self, path: Path, lines: Iterable[Line]) -> Iterator[Read]:
        numbered = iter(lines)
        head = [*islice(numbered, 1)]
        text = head[0][1].decode(errors="replace")
        delimiter = max(_DELIMITERS, key=text.count)
        header = [name.strip() for name in next(csv.reader([text], delimiter=delimiter), [])]
        self.columns = header
        if len(header) == 1 and not header[0].isidentifier():
            raise InvalidLogError(
                f"{path} is neither JSON nor a CSV with a header: line {head[0][0]} begins with "
                f"{text.strip()[:40]!r}",
                path=str(path),
                line=head[0][0],
            )
        csv.field_size_limit(_LONGEST_CELL)
        yield from _csv_rows(header, numbered, delimiter)


def _json_rows(text: bytes) -> Iterable[Row | FieldError]:
    try:
        row = json.loads(text)
    except UnicodeDecodeError as error:
        problem = "it is not in UTF-8; --encoding names another, such as latin-1"
        return [FieldError("", f"{problem} ({error.reason} at {error.start})", problem)]
    except (ValueError, RecursionError) as error:
        return [not_an_object(error)]
    return objects_in(row)


def _csv_rows(header: list[str], lines: Iterator[Line], delimiter: str) -> Iterator[Read]:
    """Rows of a CSV; a quoted cell may hold line ends."""
    last = [0]

    def texts() -> Iterator[str]:
        for last[0], text in lines:
            yield text.decode(errors="surrogateescape")

    cells = csv.reader(texts(), delimiter=delimiter)
    while True:
        try:
            row = next(cells, None)
        except csv.Error as error:
            yield last[0], 0, FieldError("", f"it is not a line of a CSV: {error}")
            continue
        if row is None:
            return
        yield last[0], sum(map(len, row)) + len(row), _csv_row(header, row)


def _csv_row(header: list[str], cells: list[str]) -> Row | FieldError:
    if len(cells) != len(header):
        problem = f"it must have {len(header)} cells, as the header has"
        return FieldError("", f"{problem}; got {len(cells)}", problem)
    return dict(zip(header, cells, strict=True))
