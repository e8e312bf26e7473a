"""What a request was answered, wherever servers and their clients write it.

chat completions  choices[].message, with tool calls    completions  choices[].text
Responses         output[] of messages and calls        Anthropic    content[] of text and tool_use
vLLM              outputs[].text or token_ids           SGLang       text, output_ids
lists             outputs: text, or token ids           one text     completion, generated_text
AIPerf            responses[] with the events of a stream, or a whole response
"""

import json
from typing import Any, TypeAlias

from radixkv.arrays import Int32Array
from radixkv.lab.logs.envelope import with_responses
from radixkv.lab.logs.streamed import joined, responses_of_aiperf
from radixkv.prompts import fields
from radixkv.prompts.chats import Message
from radixkv.prompts.fields import Row

# A message is rendered by the template; text and token ids are as the model wrote them.
Answer: TypeAlias = Message | str | Int32Array
_TEXTS = ("completion", "generated_text", "answer", "response", "output", "response_text")
_MESSAGES = ("message", "assistant_message", "response_message")
FIELDS = frozenset({"outputs", "choices", "output_ids", "text", "content", "output", "result",
                    "responses", "response_body", "responseBody", *_TEXTS, *_MESSAGES})  # fmt: skip


def answers_of(row: Row) -> list[Answer]:
    """All answers of a row, one a sample; empty where it has none. Raises FieldError."""
    received = responses_of_aiperf(row)
    if streamed := joined(received):
        return [streamed]
    for part in (*received, *with_responses(row)):
        found = _listed(part) or _choices(part) or _items(part) or _single(part, part is row)
        if found:
            return found
    return []


def _listed(part: Row) -> list[Answer]:
    outputs = fields.find(part, "outputs")
    if isinstance(outputs, list) and outputs and isinstance(outputs[0], dict):
        return [_of_sample(f"outputs[{at}]", each) for at, each in enumerate(outputs)]
    if isinstance(outputs, list) and outputs and isinstance(outputs[0], list | int):
        return [*fields.lists_of_ids(part, "outputs")]
    return [text for text in fields.texts(part, "outputs") if text]


def _of_sample(where: str, sample: Row) -> Answer:
    """An output of vLLM, or a message."""
    if isinstance(sample, dict) and "role" in sample:
        return message_of(sample)
    if fields.first_of(sample, "token_ids"):
        return fields.token_ids(sample, "token_ids")
    return fields.text(sample, "text")


def _choices(part: Row) -> list[Answer]:
    choices = fields.find(part, "choices")
    if choices is None:
        return []
    if not isinstance(choices, list):
        fields.wrong("choices", choices, "a list of choices")
    found = (_of_choice(f"choices[{at}]", each) for at, each in enumerate(choices))
    return [each for each in found if each]


def _of_choice(where: str, choice: Any) -> Answer | None:
    message = fields.find(choice, "message") if isinstance(choice, dict) else None
    if isinstance(message, dict):
        answer = message_of(message)
        return answer if answer.get("content") or answer.get("tool_calls") else None
    text = choice.get("text") if isinstance(choice, dict) else None
    return fields.encodable(f"{where}.text", text) if isinstance(text, str) else None


def _items(part: Row) -> list[Answer]:
    """The items of a Responses answer, or the content of an Anthropic one, as one message."""
    items = part.get("output")
    if isinstance(items, list) and all(isinstance(each, dict) for each in items) and items:
        return [message_of_items(items)]
    blocks = part.get("content")
    if part.get("role") == "assistant" or part.get("type") == "message":
        return [message_of({"role": "assistant", "content": blocks})]
    return []


def _single(part: Row, is_row: bool) -> list[Answer]:
    if not is_row:
        if fields.first_of(part, "output_ids"):
            return [*fields.lists_of_ids(part, "output_ids")]
        if isinstance(part.get("text"), str) and part["text"]:
            return [fields.text(part, "text")]
    message = fields.first_of(part, *_MESSAGES)
    if message and isinstance(fields.find(part, message), dict):
        return [message_of(fields.find(part, message))]
    found = next((name for name in _TEXTS if isinstance(part.get(name), str) and part[name]), None)
    return [fields.text(part, found)] if found else []


def message_of_items(items: list[Row]) -> Message:
    """Items of a Responses answer as one message."""
    parts = [part for each in items if each.get("type", "message") == "message"
             for part in (each.get("content") or [])]  # fmt: skip
    calls = [
        tool_call(each.get("call_id") or each.get("id"), each.get("name"), each.get("arguments"))
        for each in items
        if each.get("type") == "function_call"
    ]
    return _message("assistant", parts, calls)


def message_of(message: Row) -> Message:
    """A message of any of the formats as chat completions have it."""
    blocks = message.get("content")
    if not isinstance(blocks, list):
        return dict(message)
    blocks = [each if isinstance(each, dict) else {"type": "text", "text": each} for each in blocks]
    calls = [
        tool_call(each.get("id"), each.get("name"), each.get("input"))
        for each in blocks
        if each.get("type") == "tool_use"
    ]
    rest = [each for each in blocks if each.get("type") not in _NOT_TEXT]
    known = {name: value for name, value in message.items() if name != "content"}
    if thoughts := [each.get("thinking") for each in blocks if each.get("type") == "thinking"]:
        known["reasoning_content"] = "".join(map(str, thoughts))
    return known | _message(str(message.get("role") or "assistant"), rest,
                            [*(message.get("tool_calls") or []), *calls])  # fmt: skip


_NOT_TEXT = ("tool_use", "thinking", "redacted_thinking")


def tool_call(id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """As chat completions have it."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"id": id, "type": "function", "function": {"name": name, "arguments": written}}


def _message(role: str, content: list[Any], calls: list[Any]) -> Message:
    message: Message = {"role": role, "content": content or None}
    return message | {"tool_calls": calls} if calls else message
