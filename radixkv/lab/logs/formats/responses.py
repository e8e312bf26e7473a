"""OpenAI's Responses: {"instructions": "...", "input": "..." or [...], "tools": [...]}."""

from collections.abc import Iterator
from typing import Any

from radixkv.lab.logs.answers import answers_of, message_of, tool_call
from radixkv.lab.logs.envelope import request_of
from radixkv.lab.logs.formats.contract import Context, LogFormat, Parse
from radixkv.lab.logs.labels import time_of
from radixkv.lab.logs.records import Record
from radixkv.lab.logs.unknown_text import refuse_unknown_text
from radixkv.prompts import fields
from radixkv.prompts.chats import Chat, Message
from radixkv.prompts.fields import Row
from radixkv.prompts.openai import tools_of

_KNOWN = ("input", "instructions", "tools")
# Beside a list of messages, what shows that a text input belongs to this format.
_SHOWN_BY = ("instructions", "max_output_tokens", "previous_response_id", "store")


def is_request(row: Row) -> bool:
    given = row.get("input")
    is_items = isinstance(given, list) and bool(given) and all(
        isinstance(each, dict) and ("role" in each or "type" in each) for each in given
    )  # fmt: skip
    return is_items or (isinstance(given, str) and fields.first_of(row, *_SHOWN_BY) is not None)


def parser(context: Context) -> Parse:
    def parse(row: Row) -> Iterator[Record]:
        request = request_of(row, is_request) or row
        refuse_unknown_text(request, _KNOWN, context.ignored)
        given = request.get("input")
        if request.get("previous_response_id") is not None:
            fields.wrong("previous_response_id", request["previous_response_id"],
                         "absent: the earlier messages are not in the log")  # fmt: skip
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if not isinstance(items, list) or not items:
            fields.wrong("input", given, "text or a list of items")
        system = request.get("instructions")
        messages: list[Message] = [{"role": "system", "content": system}] if system else []
        messages += [_message(f"input[{at}]", each) for at, each in enumerate(items)]
        # A function stands in its tool without a wrapper; other tools run in the service.
        tools = [each for each in tools_of(request) if "name" in each or "function" in each]
        chat = Chat(messages, tools, {}, time_of(row, context.time_unit))
        yield context.chats.record(chat, answers_of(row))

    return parse


def _message(where: str, item: Any) -> Message:
    if not isinstance(item, dict):
        fields.wrong(where, item, "an object")
    if item.get("type") == "function_call":
        call = tool_call(item.get("call_id"), item.get("name"), item.get("arguments"))
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if item.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
    if not isinstance(item.get("role"), str):
        fields.wrong(where, item, "a message, a function_call or a function_call_output")
    return message_of({name: value for name, value in item.items() if name != "type"})


FORMAT = LogFormat(
    name="responses",
    fields=("input",),
    recognizes=lambda row: request_of(row, is_request) is not None,
    parser=parser,
    is_text=True,
)
