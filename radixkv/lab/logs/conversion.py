"""Turns the rows of a log into a tokenized log on disk."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from radixkv.arrays import Int32Array
from radixkv.errors import InvalidArgumentError, InvalidLogError
from radixkv.lab.logs.fields import FieldError, Row
from radixkv.lab.logs.formats import FORMATS, format_named, format_of
from radixkv.lab.logs.formats.contract import BlockLayout, Context, LogFormat
from radixkv.lab.logs.labels import Labels
from radixkv.lab.logs.next_answers import NextAnswers
from radixkv.lab.logs.records import BlockTokens, Prompt, Record
from radixkv.lab.logs.rows import LinePlace, Rows
from radixkv.lab.logs.segments import Segments
from radixkv.lab.logs.store import About, StoredLog, Writer
from radixkv.lab.logs.tokenizing import Tokenizer

_LOOKED_AT = 100  # rows, to recognize the format by
_BATCH_CHARACTERS, _BATCH_REQUESTS = 4_000_000, 4096


class _Placed(NamedTuple):
    place: LinePlace
    record: Record


@dataclass(frozen=True, slots=True)
class Conversion:
    """How the rows of one log become requests.

    format: a name of `FORMATS`; None: the first that recognizes one of the first rows.
    """

    format: str | None
    labels: Labels
    context: Context
    tokenizer: Tokenizer | None

    def write(self, rows: Rows, folder: Path) -> StoredLog:
        """Write the log into `folder`, whole or not at all.

        Raises InvalidLogError, InvalidArgumentError.
        """
        unread = iter(rows)
        first = [*islice(unread, _LOOKED_AT)]
        format = format_named(self.format) if self.format else self._recognized(rows, first)
        self._check_tokenizer(format, rows)
        layout = _layout(format, rows, first)
        writer = Writer(folder)
        try:
            written = _Written(writer, Segments(self.tokenizer, layout.size), self.context)
            for batch in _batches(self._records(rows, chain(first, unread), format, layout)):
                written.add(batch, rows)
            self.labels.check()
            return writer.finish(self._about(format, layout, rows, written))
        except BaseException:
            writer.abandon()
            raise

    def _recognized(self, rows: Rows, first: list[tuple[LinePlace, Row]]) -> LogFormat:
        if self.context.length:
            return FORMATS["lengths"]
        found = format_of([row for _, row in first])
        if found is None:
            raise InvalidLogError(_not_recognized(rows, first), path=str(rows.paths[0]))
        return found

    def _check_tokenizer(self, format: LogFormat, rows: Rows) -> None:
        if format.is_text and self.tokenizer is None:
            raise InvalidArgumentError(
                f"tokenizer must be a file or bytes for a log with text; got none for {rows.name}",
                format=format.name,
            )

    def _records(
        self,
        rows: Rows,
        placed: Iterable[tuple[LinePlace, Row]],
        format: LogFormat,
        layout: BlockLayout,
    ) -> Iterator[_Placed]:
        parse = format.parser(replace(self.context, block_size=layout.size))
        for place, row in placed:
            try:
                found = [self.labels.add_to(each, row) for each in parse(row)]
            except FieldError as error:
                rows.bad(place, error)
            else:
                yield from (_Placed(place, record) for record in found)

    def _about(
        self, format: LogFormat, layout: BlockLayout, rows: Rows, written: "_Written"
    ) -> About:
        if not len(written.writer):
            raise InvalidLogError(
                f"{rows.name} has no request ({rows.skipped} bad lines"
                + (f", first {rows.first_bad[0]}" if rows.first_bad else "")
                + ")",
                path=str(rows.paths[0]),
            )
        return About(
            format=format.name,
            block_size=layout.size,
            pads_last_block=layout.pads_last_block,
            has_contents=format.has_contents,
            template=self.context.chats.template.origin if written.chats else "",
            media=written.media,
            media_tokens=self.context.chats.media_tokens,
            answered=written.answered,
            answered_by_next=written.answered_by_next,
            skipped=rows.skipped,
            skipped_share=rows.bytes_skipped / max(rows.bytes_read, 1),
            reasons=dict(rows.reasons.most_common()),
            first_bad=tuple(rows.first_bad),
            is_cut=rows.is_cut,
        )


def _not_recognized(rows: Rows, first: list[tuple[LinePlace, Row]]) -> str:
    known = ", ".join(dict.fromkeys(name for each in FORMATS.values() for name in each.fields))
    if rows.columns:
        found = ", ".join(rows.columns)
        return f"{rows.name}: columns are {found}; one of {known} is needed, or --length COLUMN"
    cut = "; the file is cut" if rows.is_cut else ""
    if not first:
        return f"{rows.name}: it has no line with any of {known}{cut}"
    place, row = first[0]
    found = ", ".join(row) or "none"
    return f"{place.path}: line {place.line} has none of {known} (its fields: {found}){cut}"


def _layout(format: LogFormat, rows: Rows, first: list[tuple[LinePlace, Row]]) -> BlockLayout:
    """Of the first rows, without those that cannot say, which are bad."""
    asked: list[Row] = []
    for place, row in first:
        try:
            format.layout([row])
        except FieldError as error:
            if not rows.skip_bad:
                rows.bad(place, error)
        else:
            asked.append(row)
    try:
        return format.layout(asked) if asked else BlockLayout()
    except FieldError as error:
        raise InvalidLogError(f"{rows.name}: {error.problem}", path=str(rows.paths[0])) from None


class _Written:
    """What was written so far, and the chats that still have no answer."""

    def __init__(self, writer: Writer, segments: Segments, context: Context) -> None:
        self.writer, self._segments, self._context = writer, segments, context
        self._unanswered = NextAnswers()
        self.chats = self.media = self.answered = self.answered_by_next = 0

    def add(self, batch: list[_Placed], rows: Rows) -> None:
        """Write a batch; records without a token are bad."""
        found = self._segments.of(
            (part, record.starts and part is record.prompt)
            for _, record in batch
            for part in record.parts
        )
        for place, record in batch:
            mine = [*islice(found, len(record.parts))]
            if not mine[0][1]:
                rows.bad(place, FieldError("prompt", "the prompt has no token"))
                continue
            self._write(record, mine)

    def _write(self, record: Record, segments: list[tuple[Int32Array, int]]) -> None:
        self._answer_earlier(record)
        request = len(self.writer)
        self.writer.add(segments, session=record.session, ts=record.ts, namespace=record.namespace)
        self.media += record.media
        self.answered += bool(record.outputs)
        if record.chat is not None:
            self.chats += 1
            if not record.outputs:
                self._unanswered.add(request, record.chat, _owner(record))

    def _answer_earlier(self, record: Record) -> None:
        if record.chat is None:
            return
        for request, chat, message in self._unanswered.find(record.chat, _owner(record)):
            output = self._context.chats.answer(chat, message)
            for values, length in self._segments.of([(output, False)]):
                self.writer.add_output(request, values, length)
                self.answered_by_next += 1


def _owner(record: Record) -> str:
    return f"{record.namespace}\n{record.session}"


def _batches(records: Iterable[_Placed]) -> Iterator[list[_Placed]]:
    """Some requests at a time: enough to fill the cores, few enough to fit in memory."""
    batch: list[_Placed] = []
    size = 0
    for placed in records:
        batch.append(placed)
        size += sum(map(_size, placed.record.parts))
        if size >= _BATCH_CHARACTERS or len(batch) >= _BATCH_REQUESTS:
            yield batch
            batch, size = [], 0
    yield batch


def _size(part: Prompt) -> int:
    if isinstance(part, BlockTokens):
        return len(part.values)
    return sum(map(len, part)) if isinstance(part, tuple) else len(part)
