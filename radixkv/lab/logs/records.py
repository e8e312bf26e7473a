"""One request as a line of a log has it, before its text is tokenized."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from radixkv.tree.tokens import Int32Array


class BlockTokens(NamedTuple):
    """Tokens known by their blocks: each of `values` stands for a block, `length` tokens in all.

    values: ints of any size, equal where the tokens are equal; empty: unlike all other tokens.
    """

    values: list[int]
    length: int


Prompt: TypeAlias = str | Int32Array | BlockTokens


@dataclass(slots=True)
class Record:
    """One request of a log.

    ts: seconds. line: its number in the file, from 1.
    """

    prompt: Prompt
    outputs: list[Prompt]
    session: str | None = None
    ts: float | None = None
    namespace: str | None = None
    line: int = 0

    @property
    def parts(self) -> list[Prompt]:
        """The prompt, then the outputs."""
        return [self.prompt, *self.outputs]
