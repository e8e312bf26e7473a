"""Turns the rows of a log into a tokenized log on disk."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from radixkv.errors import InvalidArgumentError, InvalidLogError
from radixkv.lab.logs.fields import FieldError, Row
from radixkv.lab.logs.formats import FORMATS, format_named, format_of
from radixkv.lab.logs.formats.contract import BlockLayout, LogFormat, Parse, Render
from radixkv.lab.logs.labels import LabelFields
from radixkv.lab.logs.records import BlockTokens, Prompt, Record
from radixkv.lab.logs.rows import Rows
from radixkv.lab.logs.store import About, StoredLog, Writer
from radixkv.lab.logs.tokenizing import Tokenizer
from radixkv.memory.pages import round_up
from radixkv.tree.tokens import Int32Array

_LOOKED_AT = 100  # rows, to recognize the format by
_BATCH_CHARACTERS, _BATCH_REQUESTS = 4_000_000, 4096


@dataclass(frozen=True, slots=True)
class Conversion:
    """How the rows of one log become requests.

    format: a name of `FORMATS`; None: the format that recognizes the first rows. render: turns a
    chat into text.
    """

    format: str | None
    labels: LabelFields
    render: Render
    tokenizer: Tokenizer | None

    def write(self, rows: Rows, folder: Path) -> StoredLog:
        """Write the log into `folder`, whole or not at all.

        Raises InvalidLogError, InvalidArgumentError.
        """
        unread = iter(rows)
        first = [*islice(unread, _LOOKED_AT)]
        format = format_named(self.format) if self.format else _recognized(rows, first)
        self._check_tokenizer(format, rows.path)
        layout = _layout(format, rows, first)
        segments = _Segments(self.tokenizer, layout.size)
        records = self._records(rows, chain(first, unread), format.parser(self.render))
        writer = Writer(folder)
        try:
            for batch in _batches(records):
                _add(batch, segments, rows, writer)
            return writer.finish(_about(format, layout, rows, len(writer)))
        except BaseException:
            writer.abandon()
            raise

    def _check_tokenizer(self, format: LogFormat, path: Path) -> None:
        if format.is_text and self.tokenizer is None:
            raise InvalidArgumentError(
                f"{path} has text; give a tokenizer.json, or bytes as the tokenizer",
                format=format.name,
            )

    def _records(
        self, rows: Rows, numbered: Iterable[tuple[int, Row]], parse: Parse
    ) -> Iterator[Record]:
        for line, row in numbered:
            try:
                record = self.labels.add_to(parse(row), row)
            except FieldError as error:
                rows.bad(line, error)
            else:
                record.line = line
                yield record


def _recognized(rows: Rows, first: list[tuple[int, Row]]) -> LogFormat:
    found = next(filter(None, (format_of(row) for _, row in first)), None)
    if found is None:
        known = ", ".join(dict.fromkeys(name for each in FORMATS.values() for name in each.fields))
        where = f"line {first[0][0]} has none of" if first else "it has no line with any of"
        raise InvalidLogError(
            f"{rows.path}: {where} {known}" + ("; the file is cut" if rows.is_cut else ""),
            path=str(rows.path),
        )
    return found


def _layout(format: LogFormat, rows: Rows, first: list[tuple[int, Row]]) -> BlockLayout:
    """As the first row has it that can say."""
    for line, row in first:
        try:
            return format.layout(row)
        except FieldError as error:
            if not rows.skip_bad:
                rows.bad(line, error)
    return BlockLayout()


class _Segments:
    """The stored values of prompts and outputs."""

    def __init__(self, tokenizer: Tokenizer | None, block_size: int) -> None:
        self._tokenizer, self._block_size = tokenizer, block_size
        self._numbers = dict[Hashable, int]()

    def of(self, parts: Iterable[Prompt]) -> Iterator[tuple[Int32Array, int]]:
        """The values of each part and its length in tokens."""
        parts = [*parts]
        texts = [part for part in parts if isinstance(part, str)]
        encoded = iter(self._tokenizer.encode(texts) if texts and self._tokenizer else [])
        for part in parts:
            if isinstance(part, BlockTokens):
                yield self._numbered(part), part.length
            else:
                values = next(encoded) if isinstance(part, str) else part
                yield values, len(values)

    def _numbered(self, blocks: BlockTokens) -> Int32Array:
        """Small numbers for the values of a log; without values, numbers that nothing else has."""
        numbers = self._numbers
        num_blocks = round_up(blocks.length, self._block_size) // self._block_size
        values: Sequence[Hashable] = blocks.values or [object() for _ in range(num_blocks)]
        return np.array([numbers.setdefault(each, len(numbers)) for each in values], np.int32)


def _add(batch: list[Record], segments: _Segments, rows: Rows, writer: Writer) -> None:
    found = segments.of(part for record in batch for part in record.parts)
    for record in batch:
        mine = [*islice(found, len(record.parts))]
        if not mine[0][1]:
            rows.bad(record.line, FieldError("prompt", "the prompt has no token"))
            continue
        writer.add(mine, session=record.session, ts=record.ts, namespace=record.namespace)


def _about(format: LogFormat, layout: BlockLayout, rows: Rows, requests: int) -> About:
    if not requests:
        raise InvalidLogError(
            f"{rows.path} has no request ({rows.skipped} bad lines)", path=str(rows.path)
        )
    return About(
        format=format.name,
        block_size=layout.size,
        pads_last_block=layout.pads_last_block,
        skipped=rows.skipped,
        first_bad=tuple(rows.first_bad),
        is_cut=rows.is_cut,
    )


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Some requests at a time: enough to fill the cores, few enough to fit in memory."""
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += sum(len(part) for part in record.parts)
        if size >= _BATCH_CHARACTERS or len(batch) >= _BATCH_REQUESTS:
            yield batch
            batch, size = [], 0
    yield batch
