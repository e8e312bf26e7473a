"""Prompts as hashes of blocks, times in ms, as Mooncake published them, and Dynamo and AIPerf:

    {"timestamp": 0, "input_length": 700, "output_length": 20, "hash_ids": [0, 1]}

Blocks are of 512 tokens, or of the power of two that fits the lengths of the first rows.
"""

from collections.abc import Iterator

from radixkv.lab.logs.formats.contract import BlockLayout, Context, LogFormat, Parse
from radixkv.lab.logs.records import BlockTokens, Prompt, Record
from radixkv.pages import round_up
from radixkv.prompts import fields
from radixkv.prompts.fields import FieldError, Row

_USUAL = 512
_SIZES = (_USUAL, *(2**power for power in range(12, -1, -1)))


def size_that_fits(rows: list[Row]) -> int:
    """The block size of a log with these rows. Raises FieldError where no size fits."""
    known = [(fields.count(row, "input_length", low=1), len(_hashes(row))) for row in rows]
    fits = {size: sum(_fits(*each, size) for each in known) for size in _SIZES}
    # Of sizes that fit equally many the usual one; a bad row in ten does not make another right.
    size = _USUAL if fits[_USUAL] > 0.9 * len(known) else max(fits, key=fits.__getitem__)
    if not fits[size]:
        raise FieldError("hash_ids", "no size of blocks fits input_length and hash_ids of the "
                         "first lines; give it as block_size in the lines")  # fmt: skip
    return size


def _fits(length: int, hashes: int, size: int) -> bool:
    return hashes == round_up(length, size) // size


def record_of_blocks(row: Row, block_size: int, time_unit: str) -> Record:
    """A request of hashed blocks. Raises FieldError."""
    hashes, length = _hashes(row), fields.count(row, "input_length", low=1)
    if not _fits(length, len(hashes), block_size):
        needed = round_up(length, block_size) // block_size
        right = f"{needed} hashes for {length} tokens in blocks of {block_size}"
        fields.wrong("hash_ids", f"{len(hashes)} hashes", right)
    record = Record(BlockTokens([*hashes], length), output_of_length(row, "output_length"))
    record.ts = fields.seconds(row, "timestamp", time_unit)
    return record


def _hashes(row: Row) -> list[int]:
    hashes = fields.find(row, "hash_ids")
    if not isinstance(hashes, list) or not all(type(each) is int for each in hashes):
        fields.wrong("hash_ids", hashes, "a list of ints")
    return hashes


def output_of_length(row: Row, path: str | None) -> list[Prompt]:
    """One output of which only the length is known; empty where the row has no length."""
    length = fields.count(row, path, low=0) if path and fields.first_of(row, path) else 0
    return [BlockTokens([], length)] if length else []


def layout(rows: list[Row]) -> BlockLayout:
    return BlockLayout(size_that_fits(rows), pads_last_block=True)


def parser(context: Context) -> Parse:
    def parse(row: Row) -> Iterator[Record]:
        yield record_of_blocks(row, context.block_size, context.time_unit or "ms")

    return parse


FORMAT = LogFormat(
    name="blocks",
    fields=("hash_ids",),
    recognizes=lambda row: "hash_ids" in row,
    parser=parser,
    layout=layout,
)
