"""Answers that a log shows only in the next request, which repeats the chat and goes on."""

import hashlib
import json
from collections.abc import Iterator

from radixkv.prompts.chats import Chat, Message


class NextAnswers:
    """Chats without an answer of their own, by all their messages.

    A request whose messages begin with those of an earlier one, and go on with an assistant's, has
    the earlier one's answer. Memory: some 100 bytes a request.
    """

    def __init__(self) -> None:
        self._unanswered: dict[bytes, int] = {}

    def find(self, chat: Chat, owner: str) -> Iterator[tuple[int, Chat, Message]]:
        """Earlier requests of `owner` whose answer this chat shows: number, chat, answer."""
        for at, prefix in enumerate(_hashes(chat, owner)[:-1]):
            message = chat.messages[at]
            request = self._unanswered.pop(prefix, None) if message["role"] == "assistant" else None
            if request is not None:
                yield request, Chat(chat.messages[:at], chat.tools, chat.options, chat.ts), message

    def add(self, request: int, chat: Chat, owner: str) -> None:
        """A request without an answer."""
        self._unanswered[_hashes(chat, owner)[-1]] = request


def _hashes(chat: Chat, owner: str) -> list[bytes]:
    """Of what stands before each message, and of all of them."""
    whole = hashlib.blake2b(owner.encode("utf-8", "surrogatepass"), digest_size=16)
    found = [whole.digest()]
    for message in chat.messages:
        whole.update(json.dumps(message, sort_keys=True).encode("utf-8", "surrogatepass"))
        found.append(whole.digest())
    return found
