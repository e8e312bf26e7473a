"""Reads a log of any format, tokenizes it once, and keeps the result by what went into it."""

import hashlib
import json
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from radixkv.errors import InvalidArgumentError, InvalidLogError
from radixkv.lab.chat import CHATML, find_template, read_template, renderer
from radixkv.lab.fields import FieldError, Row
from radixkv.lab.progress import Tell
from radixkv.lab.records import BLOCK_SIZE, Names, Parse, Record, Run, Tokens, detect, parser
from radixkv.lab.rows import Rows
from radixkv.lab.store import WHOLE_SEGMENT, About, StoredLog, Writer, open_stored
from radixkv.lab.tokenizing import Tokenizer, load_tokenizer
from radixkv.tree.tokens import Int32Array

FORMATS = ("text", "ids", "chat", "blocks", "lengths")
VERSION = 3  # of what is kept; a new one reads every log again
_BLOCK_SIZES = {"blocks": BLOCK_SIZE, "lengths": WHOLE_SEGMENT}
_LOOKED_AT = 100  # rows to tell the format by
_BATCH_CHARACTERS, _BATCH_REQUESTS = 4_000_000, 4096


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read a log.

    format: one of `FORMATS`, None: as the first rows look. tokenizer, chat_template: files; text
    and chats need the first, chats without the second take what is beside the tokenizer, or ChatML.
    session, namespace: fields, with dots for fields inside fields. skip_bad: bad lines are counted
    and left out, and so is what comes after the place where a file is cut.
    """

    format: str | None = None
    tokenizer: str | Path | None = None
    chat_template: Path | None = None
    session: str | None = None
    namespace: str | None = None
    skip_bad: bool = False

    def __post_init__(self) -> None:
        if self.format not in (None, *FORMATS):
            raise InvalidArgumentError(
                f"format is {self.format!r}; it takes one of {', '.join(FORMATS)}",
                format=self.format,
            )


def read_log(
    path: str | Path, how: Reading | None = None, *, tell: Tell | None = None
) -> StoredLog:
    """The requests of the file at `path`, tokenized at the first reading and kept on disk.

    tell: hears how many bytes of the file were read so far.
    Raises InvalidLogError with file, line and field, InvalidArgumentError, BackendUnavailableError.
    """
    path, how = Path(path), how or Reading()
    if not path.is_file():
        raise InvalidLogError(f"{path} is no file", path=str(path))
    tokenizer = load_tokenizer(how.tokenizer) if how.tokenizer is not None else None
    template = _template(how)
    folder = cache_folder() / _key(path, how, tokenizer, template)
    with suppress(InvalidLogError):  # not there yet, or damaged
        return open_stored(folder)
    rows = Rows(path, skip_bad=how.skip_bad, tell=tell)
    try:
        return _Conversion(rows, how, tokenizer, template).write(folder)
    except OSError as error:
        raise InvalidArgumentError(
            f"{folder.parent} cannot be written: {error.strerror}; RADIXKV_CACHE_DIR names another",
            path=str(folder.parent),
        ) from error


def cache_folder() -> Path:
    """Where tokenized logs are kept: RADIXKV_CACHE_DIR, else radixkv in XDG_CACHE_HOME."""
    if named := os.environ.get("RADIXKV_CACHE_DIR"):
        return Path(named) / "lab"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "radixkv" / "lab"


def _key(path: Path, how: Reading, tokenizer: Tokenizer | None, template: str) -> str:
    """What stands for the file's content and for how it is read."""
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    source = hashlib.sha256(tokenizer.source if tokenizer else b"").hexdigest()
    options = [how.format, how.session, how.namespace, how.skip_bad]
    whole = json.dumps([VERSION, content, source, template, options])
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def _template(how: Reading) -> str:
    if how.chat_template is not None:
        return read_template(how.chat_template)
    return find_template(how.tokenizer) or CHATML


class _Conversion:
    """One file on its way to a tokenized log."""

    def __init__(
        self, rows: Rows, how: Reading, tokenizer: Tokenizer | None, template: str
    ) -> None:
        self._rows, self._tokenizer = rows, tokenizer
        self._names, self._template = Names(how.session, how.namespace), template
        self._format, self._numbers = how.format, dict[Hashable, int]()
        self._block_size = 1

    def write(self, folder: Path) -> StoredLog:
        rows = iter(self._rows)
        first = [*islice(rows, _LOOKED_AT)]
        format = self._format or self._detect(first)
        self._check_tokenizer(format)
        self._block_size = _BLOCK_SIZES.get(format, 1)
        parse = parser(format, self._names, renderer(self._template))
        writer = Writer(folder)
        try:
            for batch in _batches(self._records(chain(first, rows), parse)):
                self._add(batch, writer)
            return writer.finish(self._about(format, writer))
        except BaseException:
            writer.abandon()
            raise

    def _detect(self, rows: list[tuple[int, Row]]) -> str:
        found = (detect(row, is_csv=self._rows.is_csv) for _, row in rows)
        format = next(filter(None, found), None)
        if format is None:
            raise InvalidLogError(
                f"{self._rows.path}: "
                + (f"line {rows[0][0]} has none of" if rows else "it has no line with any of")
                + " prompt, messages, token_ids, hash_ids (JSON) or ContextTokens, input_length "
                "(CSV)" + ("; the file is cut" if self._rows.is_cut else ""),
                path=str(self._rows.path),
            )
        return format

    def _check_tokenizer(self, format: str) -> None:
        if format in ("text", "chat") and self._tokenizer is None:
            raise InvalidArgumentError(
                f"{self._rows.path} has text; give a tokenizer.json, or bytes as the tokenizer",
                format=format,
            )

    def _records(self, rows: Iterable[tuple[int, Row]], parse: Parse) -> Iterator[Record]:
        for line, row in rows:
            try:
                record = parse(row)
            except FieldError as error:
                self._rows.bad(line, error)
            else:
                record.line = line
                yield record

    def _add(self, batch: list[Record], writer: Writer) -> None:
        texts = [part for record in batch for part in _parts(record) if isinstance(part, str)]
        encoded = iter(self._tokenizer.encode(texts) if texts and self._tokenizer else [])
        for record in batch:
            segments = [self._segment(part, encoded) for part in _parts(record)]
            if not segments[0][1]:
                self._rows.bad(record.line, FieldError("prompt", "the prompt has no token"))
                continue
            writer.add(
                segments,
                session=record.session,
                ts=record.ts,
                namespace=record.namespace,
            )

    def _segment(self, part: Tokens, encoded: Iterator[Int32Array]) -> tuple[Int32Array, int]:
        if isinstance(part, Run):
            return self._numbered(part), part.length
        values = next(encoded) if isinstance(part, str) else part
        return values, len(values)

    def _numbered(self, run: Run) -> Int32Array:
        """Small numbers for the values of a log; without values, some that nothing else has."""
        numbers, num_blocks = self._numbers, -(-run.length // self._block_size)
        values: Sequence[Hashable] = run.values or [object() for _ in range(num_blocks)]
        return np.array([numbers.setdefault(each, len(numbers)) for each in values], np.int32)

    def _about(self, format: str, writer: Writer) -> About:
        rows = self._rows
        if not len(writer):
            raise InvalidLogError(
                f"{rows.path} has no request ({rows.skipped} bad lines)", path=str(rows.path)
            )
        return About(
            format=format,
            block_size=self._block_size,
            pads_last_block=format == "blocks",
            skipped=rows.skipped,
            first_bad=tuple(rows.first_bad),
            is_cut=rows.is_cut,
        )


def _parts(record: Record) -> list[Tokens]:
    return [record.prompt, *record.outputs]


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Some requests at a time: as many as fill the cores, as few as fit in memory."""
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += sum(len(part) for part in _parts(record))
        if size >= _BATCH_CHARACTERS or len(batch) >= _BATCH_REQUESTS:
            yield batch
            batch, size = [], 0
    yield batch
