"""Numbers of tokens alone, as a CSV with a header: TIMESTAMP, ContextTokens, GeneratedTokens."""

from radixkv.lab.logs import fields
from radixkv.lab.logs.fields import Row
from radixkv.lab.logs.formats.blocks import output_of_length
from radixkv.lab.logs.formats.contract import BlockLayout, LogFormat
from radixkv.lab.logs.records import BlockTokens, Record

WHOLE_SEGMENT = 2**31 - 1  # one value stands for all tokens of a prompt
LENGTHS = ("ContextTokens", "input_length", "input_tokens", "prompt_tokens", "prompt_len")
_OUTPUT_LENGTHS = (
    "GeneratedTokens", "output_length", "output_tokens", "completion_tokens", "output_len"
)  # fmt: skip


def parse(row: Row) -> Record:
    """Raises FieldError."""
    path = fields.first_of(row, *LENGTHS) or LENGTHS[0]
    length = fields.count(row, path, low=1)
    output = output_of_length(row, fields.first_of(row, *_OUTPUT_LENGTHS))
    return Record(BlockTokens([], length), output)


FORMAT = LogFormat(
    name="lengths",
    fields=LENGTHS[:2],
    recognizes=lambda row: fields.first_of(row, *LENGTHS) is not None,
    parser=lambda _: parse,
    layout=lambda _: BlockLayout(WHOLE_SEGMENT),
)
