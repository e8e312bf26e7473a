"""Prompts as hashes of blocks whose size each line names, times in ms:

{"timestamp": 0, "session": "a", "input_length": 100, "block_size": 64, "hash_ids": [0, 1]}
"""

from radixkv.lab.logs import fields
from radixkv.lab.logs.fields import Row
from radixkv.lab.logs.formats.blocks import record_of_blocks
from radixkv.lab.logs.formats.contract import BlockLayout, LogFormat, Parse, Render
from radixkv.lab.logs.records import Record


def layout(first: Row) -> BlockLayout:
    """Raises FieldError."""
    return BlockLayout(fields.count(first, "block_size", low=1), pads_last_block=True)


def parser(_: Render) -> Parse:
    """All rows of one log have blocks of one size, that of the first."""
    first: int | None = None

    def parse(row: Row) -> Record:
        nonlocal first
        size = fields.count(row, "block_size", low=1)
        first = first or size
        if size != first:
            fields.wrong("block_size", size, f"{first}, as the first line of the log has it")
        return record_of_blocks(row, size)

    return parse


FORMAT = LogFormat(
    name="sized-blocks",
    fields=("hash_ids",),
    recognizes=lambda row: "hash_ids" in row and "block_size" in row,
    parser=parser,
    layout=layout,
)
