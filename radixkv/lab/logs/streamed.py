"""An answer that came in pieces, as clients log what a server streamed."""

from collections.abc import Iterable, Iterator
from typing import Any

from radixkv.lab.logs.envelope import as_object
from radixkv.prompts import fields
from radixkv.prompts.chats import Message
from radixkv.prompts.fields import Row


def responses_of_aiperf(row: Row) -> list[Row]:
    """What one of AIPerf's raw records received: a whole response, or its events in turn."""
    received = row.get("responses")
    listed = [each for each in received if isinstance(each, dict)] if isinstance(
        received, list) else []  # fmt: skip
    texts = [
        text
        for each in listed
        for text in (each.get("text"), *(packet.get("value") for packet in _packets(each)))
    ]
    return [found for found in map(as_object, texts) if found is not None]


def _packets(event: Row) -> list[Row]:
    packets = event.get("packets")
    return [each for each in packets if isinstance(each, dict)] if isinstance(packets, list) else []


def joined(chunks: Iterable[Row]) -> Message | str | None:
    """The first choice of chunks of a stream; None where none holds a piece of an answer."""
    texts: list[str] = []
    contents: list[str] = []
    calls: dict[int, Row] = {}
    for choice in _first_choices(chunks):
        delta = choice.get("delta")
        if isinstance(choice.get("text"), str):
            texts.append(fields.encodable("responses", choice["text"]))
        if isinstance(delta, dict):
            if isinstance(delta.get("content"), str):
                contents.append(fields.encodable("responses", delta["content"]))
            _add_calls(calls, delta.get("tool_calls") or [])
    if calls:
        content = "".join(contents) or None
        return {"role": "assistant", "content": content, "tool_calls": [*calls.values()]}
    if contents:
        return {"role": "assistant", "content": "".join(contents)}
    return "".join(texts) or None


def _first_choices(chunks: Iterable[Row]) -> Iterator[Row]:
    for chunk in chunks:
        for choice in chunk.get("choices") or []:
            if isinstance(choice, dict) and not choice.get("index"):
                yield choice


def _add_calls(calls: dict[int, Row], pieces: list[Any]) -> None:
    """A call comes as its name, and then its arguments in pieces."""
    for piece in pieces:
        given = piece.get("function") or {}
        call = calls.setdefault(
            piece.get("index", len(calls)),
            {"id": piece.get("id"), "type": "function", "function": {"name": "", "arguments": ""}},
        )
        for name in ("name", "arguments"):
            call["function"][name] += given.get(name) or ""
