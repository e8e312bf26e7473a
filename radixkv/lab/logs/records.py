"""One request as a line of a log has it, before its text is tokenized."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from radixkv.arrays import Int32Array
from radixkv.prompts.chats import Chat


@dataclass(frozen=True, slots=True)
class BlockTokens:
    """Tokens known by their blocks: each of `values` stands for a block, `length` tokens in all.

    values: equal where the tokens are equal; empty: unlike all other tokens.
    """

    values: list[Hashable]
    length: int


# In a tuple, texts and media in turn; each text is tokenized alone, as engines do around media.
Prompt: TypeAlias = str | Int32Array | BlockTokens | tuple[str | Int32Array, ...]


@dataclass(slots=True)
class Record:
    """One request of a log.

    ts: seconds. media: pictures, sounds and files in the prompt. starts: whether the tokenizer's
    start token comes before the prompt, as before text that no template wrote. chat: what the
    prompt was rendered from.
    """

    prompt: Prompt
    outputs: list[Prompt]
    session: str | None = None
    ts: float | None = None
    namespace: str | None = None
    media: int = 0
    starts: bool = False
    chat: Chat | None = None

    @property
    def parts(self) -> list[Prompt]:
        """The prompt, then the outputs."""
        return [self.prompt, *self.outputs]
