"""Chat completions: {"messages": [...], "tools": [...], "response": {...}}, by a chat template.

Alone or in the envelope of a gateway, a proxy or a batch file.
"""

from collections.abc import Iterator

from radixkv.lab.logs.answers import answers_of, message_of
from radixkv.lab.logs.envelope import request_of
from radixkv.lab.logs.formats.contract import Context, LogFormat, Parse
from radixkv.lab.logs.labels import time_of
from radixkv.lab.logs.records import Record
from radixkv.lab.logs.unknown_text import refuse_unknown_text
from radixkv.prompts.fields import Row
from radixkv.prompts.openai import chat_of

_KNOWN = ("messages", "tools", "functions", "chat_template_kwargs", "documents")


def is_request(row: Row) -> bool:
    return row.get("messages") is not None


def parser(context: Context) -> Parse:
    def parse(row: Row) -> Iterator[Record]:
        request = _sent(request_of(row, is_request) or row)
        refuse_unknown_text(request, _KNOWN, context.ignored)
        chat = chat_of(request, time_of(row, context.time_unit), message_of)
        yield context.chats.record(chat, answers_of(row))

    return parse


def _sent(request: Row) -> Row:
    """Of LiteLLM's log, which keeps what comes beside the messages, such as tools, as an object of
    its own, what was sent.
    """
    parameters = request.get("model_parameters")
    if not isinstance(parameters, dict):
        return request
    return {**parameters, "messages": request["messages"]}


FORMAT = LogFormat(
    name="chat",
    fields=("messages",),
    recognizes=lambda row: request_of(row, is_request) is not None,
    parser=parser,
    is_text=True,
)
