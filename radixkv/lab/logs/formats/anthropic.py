"""Messages as Anthropic's API has them: a system prompt of its own, tools by schema."""

from collections.abc import Iterator
from typing import Any

from radixkv.lab.logs.answers import answers_of, message_of
from radixkv.lab.logs.envelope import request_of
from radixkv.lab.logs.formats import chat
from radixkv.lab.logs.formats.contract import Context, LogFormat, Parse
from radixkv.lab.logs.labels import time_of
from radixkv.lab.logs.records import Record
from radixkv.lab.logs.unknown_text import refuse_unknown_text
from radixkv.prompts import openai
from radixkv.prompts.chats import Chat, Message
from radixkv.prompts.fields import Row

_ITS_OWN = ("tool_use", "tool_result", "thinking")


def is_request(row: Row) -> bool:
    if not chat.is_request(row) or not isinstance(row["messages"], list):
        return False
    tools = row.get("tools") if isinstance(row.get("tools"), list) else []
    return (
        row.get("system") is not None
        or any(isinstance(each, dict) and "input_schema" in each for each in tools or [])
        or any(_has_its_own(each) for each in row["messages"])
    )


def _has_its_own(message: Any) -> bool:
    blocks = message.get("content") if isinstance(message, dict) else None
    return isinstance(blocks, list) and any(
        isinstance(each, dict) and each.get("type") in _ITS_OWN for each in blocks
    )


def parser(context: Context) -> Parse:
    def parse(row: Row) -> Iterator[Record]:
        request = request_of(row, chat.is_request) or row
        refuse_unknown_text(request, ("messages", "system", "tools"), context.ignored)
        found = openai.chat_of(
            {**request, "tools": None}, time_of(row, context.time_unit), message_of
        )
        system = [{"role": "system", "content": request["system"]}] if request.get("system") else []
        messages = [*map(message_of, system)]
        messages += [each for message in found.messages for each in _with_results(message)]
        yield context.chats.record(Chat(messages, _tools(request), {}, found.ts), answers_of(row))

    return parse


def _with_results(message: Message) -> Iterator[Message]:
    """Results of tools are messages of their own; the rest of a message follows them."""
    blocks = message.get("content")
    if not isinstance(blocks, list):
        yield message
        return
    for each in blocks:
        if each.get("type") == "tool_result":
            yield {"role": "tool", "tool_call_id": each.get("tool_use_id"),
                   "content": each.get("content")}  # fmt: skip
    rest = [each for each in blocks if each.get("type") != "tool_result"]
    if rest or len(rest) == len(blocks):
        yield {**message, "content": rest}


def _tools(request: Row) -> list[dict[str, Any]]:
    return [
        {"name": each.get("name"), "description": each.get("description"),
         "parameters": each.get("input_schema")}
        for each in openai.tools_of(request)
    ]  # fmt: skip


FORMAT = LogFormat(
    name="anthropic",
    fields=("messages",),
    recognizes=lambda row: request_of(row, is_request) is not None,
    parser=parser,
    is_text=True,
)
