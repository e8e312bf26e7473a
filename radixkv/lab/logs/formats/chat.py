"""Chat completions: {"messages": [...], "tools": [...], "response": {...}}, by a chat template.

Alone or in the envelope of a gateway, a proxy or a batch file.
"""

from collections.abc import Iterator
from typing import Any

from radixkv.lab.logs import fields
from radixkv.lab.logs.answers import answers_of, message_of
from radixkv.lab.logs.chats import Chat, Message
from radixkv.lab.logs.envelope import request_of
from radixkv.lab.logs.fields import Row
from radixkv.lab.logs.formats.contract import Context, LogFormat, Parse
from radixkv.lab.logs.labels import time_of
from radixkv.lab.logs.records import Record
from radixkv.lab.logs.unknown_text import refuse_unknown_text

_KNOWN = ("messages", "tools", "functions", "chat_template_kwargs", "documents")


def is_request(row: Row) -> bool:
    return row.get("messages") is not None


def parser(context: Context) -> Parse:
    def parse(row: Row) -> Iterator[Record]:
        request = request_of(row, is_request) or row
        refuse_unknown_text(request, _KNOWN, context.ignored)
        chat = chat_of(request, time_of(row, context.time_unit))
        yield context.chats.record(chat, answers_of(row))

    return parse


def chat_of(request: Row, ts: float | None) -> Chat:
    """The chat of a request. Raises FieldError."""
    messages = [_message(at, each) for at, each in enumerate(_listed(request, "messages"))]
    tools = [] if request.get("tool_choice") == "none" else tools_of(request)
    options = request.get("chat_template_kwargs") or {}
    if not isinstance(options, dict):
        fields.wrong("chat_template_kwargs", options, "an object")
    if documents := request.get("documents"):
        options = {**options, "documents": documents}
    return Chat(messages, tools, options, ts)


def tools_of(request: Row) -> list[dict[str, Any]]:
    """Tools, also in their older form, functions. Raises FieldError."""
    name = "tools" if request.get("tools") else "functions"
    tools = request.get(name) or []
    if not isinstance(tools, list) or not all(map(_is_tool, tools)):
        fields.wrong(name, tools, "a list of functions")
    return tools


def _is_tool(tool: Any) -> bool:
    return isinstance(tool, dict) and isinstance(tool.get("function", {}), dict)


def _message(at: int, message: Any) -> Message:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        fields.wrong(f"messages[{at}]", message, 'an object with "role" and "content"')
    return message_of(message)


def _listed(request: Row, name: str) -> list[Any]:
    found = request.get(name)
    return found if isinstance(found, list) and found else fields.wrong(name, found, "messages")


FORMAT = LogFormat(
    name="chat",
    fields=("messages",),
    recognizes=lambda row: request_of(row, is_request) is not None,
    parser=parser,
    is_text=True,
)
