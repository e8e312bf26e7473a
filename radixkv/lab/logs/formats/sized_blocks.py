"""Prompts as hashes of blocks whose size each line names, times in ms:

{"timestamp": 0, "session": "a", "input_length": 100, "block_size": 64, "hash_ids": [0, 1]}
"""

from collections.abc import Iterator

from radixkv.lab.logs.formats.blocks import record_of_blocks
from radixkv.lab.logs.formats.contract import BlockLayout, Context, LogFormat, Parse
from radixkv.lab.logs.records import Record
from radixkv.prompts import fields
from radixkv.prompts.fields import Row


def layout(rows: list[Row]) -> BlockLayout:
    return BlockLayout(fields.count(rows[0], "block_size", low=1), pads_last_block=True)


def parser(context: Context) -> Parse:
    """All rows of one log have blocks of one size."""

    def parse(row: Row) -> Iterator[Record]:
        size = fields.count(row, "block_size", low=1)
        if size != context.block_size:
            right = f"{context.block_size}, as the first line of the log has it"
            fields.wrong("block_size", size, right)
        yield record_of_blocks(row, size, context.time_unit or "ms")

    return parse


FORMAT = LogFormat(
    name="sized-blocks",
    fields=("hash_ids",),
    recognizes=lambda row: "hash_ids" in row and "block_size" in row,
    parser=parser,
    layout=layout,
)
