"""Prompts as token ids: {"prompt": [1, 2, 3], "outputs": [[4, 5]]}.

Also under the names token_ids, prompt_token_ids and input_ids, and output_ids.
"""

from radixkv.lab.logs import fields
from radixkv.lab.logs.fields import Row
from radixkv.lab.logs.formats.contract import LogFormat
from radixkv.lab.logs.records import Record

_NAMED = ("token_ids", "prompt_token_ids", "input_ids")


def recognizes(row: Row) -> bool:
    return fields.first_of(row, *_NAMED) is not None or isinstance(row.get("prompt"), list)


def parse(row: Row) -> Record:
    """Raises FieldError."""
    path = fields.first_of(row, *_NAMED, "prompt") or _NAMED[0]
    outputs = fields.first_of(row, "outputs", "output_ids") or "outputs"
    return Record(fields.token_ids(row, path), [*fields.lists_of_ids(row, outputs)])


FORMAT = LogFormat(
    name="ids",
    fields=("token_ids",),
    recognizes=recognizes,
    parser=lambda _: parse,
)
