"""Hashed blocks of requests that name the request before them, times in s (Qwen's Bailian traces):

{"chat_id": 9, "parent_chat_id": 4, "timestamp": 61.1, "input_length": 30, "hash_ids": [0, 1]}
"""

from collections.abc import Iterator

from radixkv.lab.logs.formats.blocks import layout, record_of_blocks
from radixkv.lab.logs.formats.contract import Context, LogFormat, Parse
from radixkv.lab.logs.records import Record
from radixkv.prompts import fields
from radixkv.prompts.fields import Row


def parser(context: Context) -> Parse:
    """A session is the first request of a chain; -1 is before the first."""
    sessions: dict[str, str] = {}

    def parse(row: Row) -> Iterator[Record]:
        record = record_of_blocks(row, context.block_size, context.time_unit or "s")
        own = fields.label(row, "chat_id")
        if own is not None:
            before = fields.label(row, "parent_chat_id") or "-1"
            record.session = sessions[own] = sessions.get(before, own)
        yield record

    return parse


FORMAT = LogFormat(
    name="chained-blocks",
    fields=("hash_ids",),
    recognizes=lambda row: "hash_ids" in row and "parent_chat_id" in row,
    parser=parser,
    layout=layout,
)
