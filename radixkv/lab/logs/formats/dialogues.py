"""Whole dialogues, a request for each answer in them.

    {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}

as ShareGPT has them, and {"turns": [...]} of texts or prompts, as AIPerf's sessions have them.
"""

from collections.abc import Iterator
from typing import Any

from radixkv.lab.logs.formats.contract import Context, LogFormat, Parse
from radixkv.lab.logs.labels import time_of
from radixkv.lab.logs.records import Record
from radixkv.lab.logs.unknown_text import refuse_unknown_text
from radixkv.prompts import fields
from radixkv.prompts.chats import Chat, Message, requests_of_dialogue
from radixkv.prompts.fields import Row

_LISTS = ("conversations", "conversation")
_ROLES = {"human": "user", "gpt": "assistant", "bing": "assistant", "chatgpt": "assistant",
          "bard": "assistant", "model": "assistant", "function_response": "tool"}  # fmt: skip


def _list_of(row: Row) -> str | None:
    return next((name for name in _LISTS if isinstance(row.get(name), list)), None)


def parser(context: Context) -> Parse:
    """A row without an answer holds no request, and is not bad."""

    def parse(row: Row) -> Iterator[Record]:
        name = _list_of(row) or _LISTS[0]
        refuse_unknown_text(row, _LISTS, context.ignored | {"items", "source"})
        turns = row.get(name)
        if not isinstance(turns, list):
            fields.wrong(name, turns, "a list of turns")
        messages = [_message(f"{name}[{at}]", each) for at, each in enumerate(turns)]
        chat = Chat(messages, ts=time_of(row, context.time_unit))
        for asked, answer in requests_of_dialogue(chat):
            record = context.chats.record(asked, [answer])
            record.session = fields.label(row, fields.first_of(row, "id", "conversation_id"))
            yield record

    return parse


def _message(where: str, turn: Any) -> Message:
    role = fields.find(turn, "from") or fields.find(turn, "role")
    text = fields.find(turn, "value") if fields.find(turn, "value") is not None else (
        fields.find(turn, "content"))  # fmt: skip
    if not isinstance(role, str) or not isinstance(text, str):
        fields.wrong(where, turn, 'an object with "from" and "value"')
    return {"role": _ROLES.get(role, role), "content": text}


FORMAT = LogFormat(
    name="dialogues",
    fields=("conversations",),
    recognizes=lambda row: _list_of(row) is not None,
    parser=parser,
    is_text=True,
)
