"""Chats and their answers as prompts: rendered by a template, media as spans of tokens."""

from dataclasses import dataclass

from radixkv.lab.logs.answers import Answer
from radixkv.lab.logs.records import Prompt, Record
from radixkv.prompts import content, fields
from radixkv.prompts.chat_template import ChatTemplate
from radixkv.prompts.chats import Chat


@dataclass(frozen=True, slots=True)
class ChatPrompts:
    """media_tokens: how many tokens stand for a picture, a sound or a file."""

    template: ChatTemplate
    media_tokens: int

    def record(self, chat: Chat, answers: list[Answer]) -> Record:
        """The request of a chat. Raises FieldError."""
        prompt = self._prompt("messages", self.template.prompt(chat))
        media = (len(prompt) - 1) // 2 if isinstance(prompt, tuple) else 0
        outputs = [self.answer(chat, each) for each in answers]
        return Record(prompt, outputs, media=media, chat=chat)

    def answer(self, chat: Chat, answer: Answer) -> Prompt:
        """What an answer to this chat adds to the prompt. Raises FieldError."""
        if isinstance(answer, dict):
            return self._prompt("answer", self.template.answer(chat, answer))
        return answer

    def _prompt(self, where: str, rendered: str) -> Prompt:
        pieces = content.split_at_marks(fields.encodable(where, rendered))
        if len(pieces) == 1:
            return rendered
        return tuple(
            content.span(piece, self.media_tokens) if at % 2 else piece
            for at, piece in enumerate(pieces)
        )
