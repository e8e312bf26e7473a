"""Conversations of the demo: a few assistants, each with chats under one long system prompt."""

import json
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np

from radixkv.arrays import Int32Array


@dataclass(slots=True)
class Chat:
    """One conversation: the user's messages, turn by turn, and all messages so far."""

    name: str
    says: list[str]
    messages: list[dict[str, str]] = field(default_factory=list)

    def ask(self, turn: int, tokenizer: Any) -> Int32Array:
        """The whole prompt of this turn, (n,) int32: all messages so far, and the next question."""
        self.messages.append({"role": "user", "content": self.says[turn]})
        text = tokenizer.apply_chat_template(
            self.messages, tokenize=False, add_generation_prompt=True
        )
        return np.array(tokenizer.encode(text, add_special_tokens=False), np.int32)

    def answer(self, text: str) -> None:
        """Add the assistant's answer."""
        self.messages.append({"role": "assistant", "content": text})


def load_chats() -> list[Chat]:
    """The demo's own chats, assistants in turn."""
    assistants = json.loads(files("radixkv.demo").joinpath("chats.json").read_text("utf-8"))
    return [
        Chat(
            f"{assistant['name']} {number}",
            says,
            [{"role": "system", "content": assistant["system"]}],
        )
        for assistant in assistants["assistants"]
        for number, says in enumerate(assistant["chats"], 1)
    ]
