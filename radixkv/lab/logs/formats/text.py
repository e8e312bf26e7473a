"""Prompts as text: {"prompt": "...", "outputs": ["..."]}, alone or in a gateway's envelope.

Answers as completion servers and benchmark clients write them (see `answers`).
"""

from collections.abc import Iterator

from radixkv.lab.logs.answers import answers_of
from radixkv.lab.logs.envelope import request_of
from radixkv.lab.logs.formats.contract import Context, LogFormat, Parse
from radixkv.lab.logs.records import Record
from radixkv.lab.logs.unknown_text import refuse_unknown_text
from radixkv.prompts import fields
from radixkv.prompts.fields import Row

_PROMPTS = ("prompt", "text_input", "input_text", "text")


def _prompt_of(row: Row) -> str | None:
    return next((name for name in _PROMPTS if isinstance(row.get(name), str)), None)


def parser(context: Context) -> Parse:
    def parse(row: Row) -> Iterator[Record]:
        request = request_of(row, lambda each: _prompt_of(each) is not None) or row
        name = _prompt_of(request) or "prompt"
        refuse_unknown_text(request, _PROMPTS, context.ignored)
        text = fields.text(request, name)
        answers = [each for each in answers_of(row) if each is not row.get(name)]
        outputs = [each for each in answers if not isinstance(each, dict)]
        yield Record(text, [*outputs], starts=True)

    return parse


FORMAT = LogFormat(
    name="text",
    fields=("prompt",),
    recognizes=lambda row: request_of(row, lambda each: _prompt_of(each) is not None) is not None,
    parser=parser,
    is_text=True,
)
