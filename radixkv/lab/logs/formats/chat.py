"""Chats, rendered by a chat template: {"messages": [...], "tools": [...], "response": {...}}.

The messages may also be inside "body" or "request", as batch files and proxies write them.
"""

from radixkv.lab.logs import fields
from radixkv.lab.logs.fields import Row
from radixkv.lab.logs.formats.contract import LogFormat, Parse, Render
from radixkv.lab.logs.records import Record

_MESSAGES = ("messages", "body.messages", "request.messages")
_CHOICES = ("choices", "response.choices", "response.body.choices")


def recognizes(row: Row) -> bool:
    return fields.first_of(row, *_MESSAGES) is not None


def parser(render: Render) -> Parse:
    return lambda row: Record(render(chat_of(row)), [*_answers(row)])


def chat_of(row: Row) -> Row:
    """The row with the messages and tools of its chat at the top. Raises FieldError."""
    path = fields.first_of(row, *_MESSAGES)
    if path is None:
        fields.wrong("messages", None, "a list of messages")
    parent = path.rpartition(".")[0]
    return {**row, **fields.find(row, parent)} if parent else row


def _answers(row: Row) -> list[str]:
    if fields.first_of(row, "outputs"):
        return fields.texts(row, "outputs")
    choices = fields.first_of(row, *_CHOICES)
    found = fields.find(row, choices) if choices else []
    if not isinstance(found, list):
        fields.wrong(choices or "choices", found, "a list of choices")
    contents = (fields.find(choice, "message.content") for choice in found)
    return [content for content in contents if isinstance(content, str) and content]


FORMAT = LogFormat(
    name="chat",
    fields=("messages",),
    recognizes=recognizes,
    parser=parser,
    is_text=True,
)
