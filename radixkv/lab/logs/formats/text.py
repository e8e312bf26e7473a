"""Prompts as text: {"prompt": "...", "outputs": ["..."]}, also inside "body"."""

from radixkv.lab.logs import fields
from radixkv.lab.logs.fields import Row
from radixkv.lab.logs.formats.contract import LogFormat
from radixkv.lab.logs.records import Record

_PROMPT = ("prompt", "body.prompt")


def parse(row: Row) -> Record:
    """Raises FieldError."""
    path = fields.first_of(row, *_PROMPT) or "prompt"
    return Record(fields.text(row, path), [*fields.texts(row, "outputs")])


FORMAT = LogFormat(
    name="text",
    fields=("prompt",),
    recognizes=lambda row: fields.first_of(row, *_PROMPT) is not None,
    parser=lambda _: parse,
    is_text=True,
)
