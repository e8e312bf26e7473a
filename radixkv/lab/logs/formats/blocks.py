"""Prompts as hashes of blocks of 512 tokens, times in ms, as Mooncake published them:

{"timestamp": 0, "input_length": 700, "output_length": 20, "hash_ids": [0, 1]}
"""

from radixkv.lab.logs import fields
from radixkv.lab.logs.fields import Row
from radixkv.lab.logs.formats.contract import BlockLayout, LogFormat
from radixkv.lab.logs.records import BlockTokens, Prompt, Record
from radixkv.memory.pages import round_up

BLOCK_SIZE = 512


def record_of_blocks(row: Row, block_size: int) -> Record:
    """A request of hashed blocks, its time in ms. Raises FieldError."""
    hashes = fields.find(row, "hash_ids")
    if not isinstance(hashes, list) or not all(type(each) is int for each in hashes):
        fields.wrong("hash_ids", hashes, "a list of ints")
    length = fields.count(row, "input_length", low=1)
    needed = round_up(length, block_size) // block_size
    if len(hashes) != needed:
        right = f"{needed} hashes for {length} tokens in blocks of {block_size}"
        fields.wrong("hash_ids", f"{len(hashes)} hashes", right)
    milliseconds = fields.seconds(row, "timestamp")
    record = Record(BlockTokens(hashes, length), output_of_length(row, "output_length"))
    record.ts = None if milliseconds is None else milliseconds / 1000
    return record


def output_of_length(row: Row, path: str | None) -> list[Prompt]:
    """One output of which only the length is known; empty where the row has no length."""
    length = fields.count(row, path, low=0) if path and fields.first_of(row, path) else 0
    return [BlockTokens([], length)] if length else []


FORMAT = LogFormat(
    name="blocks",
    fields=("hash_ids",),
    recognizes=lambda row: "hash_ids" in row,
    parser=lambda _: lambda row: record_of_blocks(row, BLOCK_SIZE),
    layout=lambda _: BlockLayout(BLOCK_SIZE, pads_last_block=True),
)
