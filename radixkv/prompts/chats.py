"""A chat as engines take it, whatever format a log has it in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Chat:
    """Messages and tools as in OpenAI's chat completions.

    options: what else the template receives (`chat_template_kwargs`). ts: seconds since 1970, for
    templates that write the date; None: 1970-01-01.
    """

    messages: list[Message]
    tools: list[dict[str, Any]] = field(default_factory=list)
    options: Mapping[str, Any] = field(default_factory=dict)
    ts: float | None = None


def requests_of_dialogue(chat: Chat) -> Iterator[tuple[Chat, Message]]:
    """Each answer of a whole dialogue, with the chat that asked for it.

    >>> chat = Chat([{"role": role} for role in ("user", "assistant", "user", "assistant")])
    >>> [len(asked.messages) for asked, _ in requests_of_dialogue(chat)]
    [1, 3]
    """
    for at, message in enumerate(chat.messages):
        if message["role"] == "assistant" and at:
            yield Chat(chat.messages[:at], chat.tools, chat.options, chat.ts), message
