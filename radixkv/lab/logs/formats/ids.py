"""Prompts as token ids: {"prompt": [1, 2, 3], "outputs": [[4, 5]]}.

Also under the names token_ids, prompt_token_ids and input_ids, and output_ids.
"""

from collections.abc import Iterator

from radixkv.arrays import Int32Array
from radixkv.lab.logs.envelope import request_of
from radixkv.lab.logs.formats.contract import Context, LogFormat, Parse
from radixkv.lab.logs.records import Record
from radixkv.prompts import fields
from radixkv.prompts.fields import Row

_NAMED = ("token_ids", "prompt_token_ids", "input_ids")
_OUTPUTS = ("outputs", "output_ids", "output_token_ids", "response.output_ids")


def _is_request(row: Row) -> bool:
    return fields.first_of(row, *_NAMED) is not None or isinstance(row.get("prompt"), list)


def parser(_: Context) -> Parse:
    def parse(row: Row) -> Iterator[Record]:
        request = request_of(row, _is_request) or row
        path = fields.first_of(request, *_NAMED, "prompt") or _NAMED[0]
        outputs = fields.first_of(row, *_OUTPUTS) or _OUTPUTS[0]
        yield Record(fields.token_ids(request, path), [*_outputs(row, outputs)])

    return parse


def _outputs(row: Row, path: str) -> list[Int32Array]:
    """Lists of ids, or vLLM's objects with their token_ids."""
    found = fields.find(row, path)
    if isinstance(found, list) and found and isinstance(found[0], dict):
        return [fields.token_ids(each, "token_ids") for each in found]
    return fields.lists_of_ids(row, path)


FORMAT = LogFormat(
    name="ids",
    fields=("token_ids",),
    recognizes=lambda row: request_of(row, _is_request) is not None,
    parser=parser,
)
