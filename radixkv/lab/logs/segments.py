"""The stored values of prompts and outputs: tokens of text, ids as they are, blocks by number."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.lab.logs.records import BlockTokens, Prompt
from radixkv.lab.logs.tokenizing import Tokenizer
from radixkv.pages import round_up

# A part of a request, and whether the tokenizer's start token comes before it.
Marked: TypeAlias = tuple[Prompt, bool]


class Segments:
    """block_size: tokens that a value of blocks stands for."""

    def __init__(self, tokenizer: Tokenizer | None, block_size: int) -> None:
        self._tokenizer, self._block_size = tokenizer, block_size
        self._numbers = dict[Hashable, int]()

    def of(self, parts: Iterable[Marked]) -> Iterator[tuple[Int32Array, int]]:
        """The values of each part and its length in tokens; all texts are tokenized at once."""
        parts = [*parts]
        encoded = {starts: self._encode(parts, starts) for starts in (False, True)}
        for part, starts in parts:
            if isinstance(part, BlockTokens):
                yield self._numbered(part), part.length
                continue
            values = [next(encoded[starts]) if isinstance(each, str) else each
                      for each in _pieces(part)]  # fmt: skip
            joined = values[0] if len(values) == 1 else np.concatenate(values)
            yield joined, len(joined)

    def _encode(self, parts: list[Marked], starts: bool) -> Iterator[Int32Array]:
        texts = [
            piece
            for part, marked in parts
            if marked == starts and not isinstance(part, BlockTokens)
            for piece in _pieces(part)
            if isinstance(piece, str)
        ]
        if not texts or self._tokenizer is None:
            return iter([])
        return iter(self._tokenizer.encode(texts, starts=starts))

    def _numbered(self, blocks: BlockTokens) -> Int32Array:
        """Small numbers for the values of a log; without values, numbers that nothing else has."""
        numbers = self._numbers
        num_blocks = round_up(blocks.length, self._block_size) // self._block_size
        values: Sequence[Hashable] = blocks.values or [object() for _ in range(num_blocks)]
        return np.array([numbers.setdefault(each, len(numbers)) for each in values], np.int32)


def _pieces(part: Prompt) -> Sequence[str | Int32Array]:
    assert not isinstance(part, BlockTokens)
    return part if isinstance(part, tuple) else [part]
