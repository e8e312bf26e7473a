"""Numbers of tokens alone: sizes and times, but nothing to compare prompts by.

A CSV or JSON with such columns, as Azure, BurstGPT and Vidur publish them: ContextTokens,
GeneratedTokens, TIMESTAMP; Request tokens, Response tokens; num_prefill_tokens, num_decode_tokens.
"""

import re
from collections.abc import Iterable, Iterator

from radixkv.lab.logs.formats.blocks import output_of_length
from radixkv.lab.logs.formats.contract import BlockLayout, Context, LogFormat, Parse
from radixkv.lab.logs.records import BlockTokens, Record
from radixkv.prompts import fields
from radixkv.prompts.fields import Row

WHOLE_SEGMENT = 2**31 - 1  # one value stands for all tokens of a prompt
# Without case, spaces and underscores.
_LENGTHS = (
    "contexttokens", "inputlength", "inputtokens", "prompttokens", "promptlen", "inputlen",
    "requesttokens", "numprefilltokens", "numinputtokens", "promptlength", "isl"
)  # fmt: skip
_OUTPUT_LENGTHS = (
    "generatedtokens", "outputlength", "outputtokens", "completiontokens", "outputlen",
    "responsetokens", "numdecodetokens", "numoutputtokens", "osl"
)  # fmt: skip


def column_of(row: Row, names: Iterable[str]) -> str | None:
    """The column of a row that is one of `names`, however it is written."""
    written = {re.sub(r"[\W_]", "", name.lower()): name for name in row}
    return next((written[name] for name in names if name in written), None)


def parser(context: Context) -> Parse:
    def parse(row: Row) -> Iterator[Record]:
        path = context.length or column_of(row, _LENGTHS) or "input_length"
        length = fields.count(row, path, low=1)
        output = context.output_length or column_of(row, _OUTPUT_LENGTHS)
        yield Record(BlockTokens([], length), output_of_length(row, output))

    return parse


FORMAT = LogFormat(
    name="lengths",
    fields=("ContextTokens", "input_length"),
    recognizes=lambda row: column_of(row, _LENGTHS) is not None,
    parser=parser,
    layout=lambda _: BlockLayout(WHOLE_SEGMENT),
    has_contents=False,
)
