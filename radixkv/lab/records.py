"""What the lines of a log say, in each format that the lab reads.

    text     {"prompt": "...", "outputs": ["..."]}
    ids      {"prompt": [1, 2, 3], "outputs": [[4, 5]]}; also token_ids, prompt_token_ids, input_ids
    chat     {"messages": [...], "tools": [...], "response": {...}}; also inside "body" or "request"
    blocks   {"hash_ids": [0, 1], "input_length": 700, "output_length": 20, "timestamp": 0} (ms)
    lengths  CSV with a header: ContextTokens, GeneratedTokens, TIMESTAMP (or other common names)

All but `blocks` and `lengths` may have `session` and `ts`; other fields for them can be named.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from radixkv.lab import fields
from radixkv.lab.fields import Row
from radixkv.tree.tokens import Int32Array

BLOCK_SIZE = 512  # tokens a hash of a Mooncake trace stands for
_IDS = ("token_ids", "prompt_token_ids", "input_ids", "prompt")
LENGTH_COLUMNS = ("ContextTokens", "input_length", "input_tokens", "prompt_tokens", "prompt_len")
_OUTPUT_LENGTH = (
    "GeneratedTokens", "output_length", "output_tokens", "completion_tokens", "output_len"
)  # fmt: skip
_TIME = ("ts", "timestamp", "TIMESTAMP", "time", "arrived_at", "created", "created_at")
_SESSION = ("session", "session_id", "conversation_id", "chat_id")


class Run(NamedTuple):
    """Tokens in short: each of `values` stands for a whole block, up to `length` tokens in all.

    values: numbers of any size, equal where the tokens are; none: like no others.
    """

    values: list[int]
    length: int


Tokens: TypeAlias = str | Int32Array | Run


@dataclass(slots=True)
class Record:
    """One request as its line has it; text is still to be tokenized."""

    prompt: Tokens
    outputs: list[Tokens]
    session: str | None = None
    ts: float | None = None
    namespace: str | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class Names:
    """The fields that hold session and namespace; None: the usual ones, and no namespace."""

    session: str | None = None
    namespace: str | None = None


Render: TypeAlias = Callable[[Row], str]
Parse: TypeAlias = Callable[[Row], Record]


def detect(row: Row, *, is_csv: bool) -> str | None:
    """The format of a log with this line, or None."""
    if is_csv:
        return "lengths" if fields.first_of(row, *LENGTH_COLUMNS) else None
    if "hash_ids" in row:
        return "blocks"
    if _messages_of(row) is not None:
        return "chat"
    if fields.first_of(row, *_IDS[:-1]) or isinstance(row.get("prompt"), list):
        return "ids"
    return "text" if fields.first_of(row, "prompt", "body.prompt") else None


def parser(format: str, names: Names, render: Render) -> Parse:
    """Reads a line of `format`, raising FieldError; `render` turns a chat into text."""

    def common(row: Row, record: Record) -> Record:
        session = names.session or fields.first_of(row, *_SESSION)
        record.session = fields.label(row, session)
        if record.ts is None:
            record.ts = fields.seconds(row, fields.first_of(row, *_TIME))
        record.namespace = fields.label(row, names.namespace)
        return record

    parse = {"text": _text, "ids": _ids, "blocks": _blocks, "lengths": _lengths}.get(format)
    if parse is not None:
        return lambda row: common(row, parse(row))
    return lambda row: common(row, _chat(row, render))


def _text(row: Row) -> Record:
    path = fields.first_of(row, "prompt", "body.prompt") or "prompt"
    return Record(fields.text(row, path), [*fields.texts(row, "outputs")])


def _ids(row: Row) -> Record:
    path = fields.first_of(row, *_IDS) or _IDS[0]
    outputs = fields.first_of(row, "outputs", "output_ids") or "outputs"
    return Record(fields.token_ids(row, path), [*fields.lists_of_ids(row, outputs)])


def _blocks(row: Row) -> Record:
    hashes = fields.find(row, "hash_ids")
    if not isinstance(hashes, list) or not all(type(each) is int for each in hashes):
        fields.wrong("hash_ids", hashes, "a list of whole numbers")
    length = fields.count(row, "input_length", low=1)
    needed = -(-length // BLOCK_SIZE)
    if len(hashes) != needed:
        right = f"{needed} hashes for {length} tokens in blocks of {BLOCK_SIZE}"
        fields.wrong("hash_ids", f"{len(hashes)} hashes", right)
    # Milliseconds, as the traces of this format have them.
    timestamp = fields.seconds(row, "timestamp")
    record = Record(Run(hashes, length), _unknown_output(row, "output_length"))
    record.ts = None if timestamp is None else timestamp / 1000
    return record


def _lengths(row: Row) -> Record:
    path = fields.first_of(row, *LENGTH_COLUMNS) or LENGTH_COLUMNS[0]
    length = fields.count(row, path, low=1)
    return Record(Run([], length), _unknown_output(row, fields.first_of(row, *_OUTPUT_LENGTH)))


def _unknown_output(row: Row, path: str | None) -> list[Tokens]:
    length = fields.count(row, path, low=0) if path and fields.first_of(row, path) else 0
    return [Run([], length)] if length else []


def _chat(row: Row, render: Render) -> Record:
    return Record(render(row), [*_answers(row)])


def _messages_of(row: Row) -> str | None:
    return fields.first_of(row, "messages", "body.messages", "request.messages")


def chat_of(row: Row) -> Row:
    """The part of a chat's line that has its messages and tools."""
    path = _messages_of(row)
    if path is None:
        fields.wrong("messages", None, "a list of messages")
    parent = path.rpartition(".")[0]
    part: Row = fields.find(row, parent) if parent else row
    return part


def _answers(row: Row) -> list[str]:
    if fields.first_of(row, "outputs"):
        return fields.texts(row, "outputs")
    choices = fields.first_of(row, "choices", "response.choices", "response.body.choices")
    found = fields.find(row, choices) if choices else []
    if not isinstance(found, list):
        fields.wrong(choices or "choices", found, "a list of choices")
    contents = (fields.find(choice, "message.content") for choice in found)
    return [content for content in contents if isinstance(content, str) and content]
