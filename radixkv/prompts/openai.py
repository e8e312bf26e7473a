"""Requests of OpenAI's chat completions, as chats."""

from collections.abc import Callable
from typing import Any

from radixkv.prompts import fields
from radixkv.prompts.chats import Chat, Message
from radixkv.prompts.fields import Row


def chat_of(request: Row, ts: float | None, message_of: Callable[[Row], Message] = dict) -> Chat:
    """The chat of a request. Raises FieldError.

    message_of: makes a message of another form into one of chat completions.
    """
    listed = _listed(request, "messages")
    messages = [message_of(_checked(at, each)) for at, each in enumerate(listed)]
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


def _checked(at: int, message: Any) -> Row:
    if isinstance(message, dict) and isinstance(message.get("role"), str):
        return message
    return fields.wrong(f"messages[{at}]", message, 'an object with "role" and "content"')


def _listed(request: Row, name: str) -> list[Any]:
    found = request.get(name)
    return found if isinstance(found, list) and found else fields.wrong(name, found, "messages")
