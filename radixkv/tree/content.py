"""What placeholder tokens stand for: an image, a sound, anything whose tokens are all the same.

A key is int32 codes. A text token is its own code, 0 or more. A position inside a content span gets
a negative code, interned for the exact pair (content id, placeholder token). So ids are compared in
full, and two prompts share a span only if it stands for the same content from its first token on:

    tokens   [5, IMG, IMG,  6]       content  [(1, 2, id x)]
    codes    [5,  -1,  -2,  6]       -1: first of (x, IMG)   -2: the rest of (x, IMG)
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from radixkv.arguments import is_int
from radixkv.arrays import Int32Array
from radixkv.errors import InvalidContentError

# What a look-up gets for content that the tree has never stored: equal to no stored code.
UNKNOWN = -(2**31)
# Of an id, which is compared in full, and kept for as long as the content is cached.
LONGEST_ID_BYTES = 256


class ContentSpan(NamedTuple):
    """`length` tokens from `start` on stand for the content `id`, which is compared in full.

    Attributes
    ----------
    start
        First token of the span.
    length
        Tokens in it, 1 or more.
    id
        Identity of the content, 1 to 256 bytes.
    """

    start: int
    length: int
    id: bytes


Content: TypeAlias = Sequence[ContentSpan | tuple[int, int, bytes]]
NO_CONTENT: Content = ()  # the one empty tuple that there is
_Pair: TypeAlias = tuple[bytes, int]


class ContentTable:
    """Interns (content id, placeholder token) pairs; forgets a pair that no stored code uses.

    Numbers are never used again, so a code that outlives its pair never equals a later one.
    """

    def __init__(self) -> None:
        self._number_of: dict[_Pair, int] = {}
        self._pair_of: dict[int, _Pair] = {}
        self._uses: dict[int, int] = {}
        self._fresh: list[int] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._pair_of)

    def encode(
        self, token_ids: Int32Array, content: Content, *, intern: bool, checked: bool = False
    ) -> Int32Array:
        """The codes of a prompt; without spans `token_ids` itself.

        intern: number unknown content, until `settle` forgets what was not stored; without it,
        unknown content is coded UNKNOWN. checked: the spans are what `check_content` gave.
        Raises InvalidContentError for spans that overlap, are out of order or leave the prompt.
        """
        spans = read_content(content, len(token_ids), checked)
        if not spans:
            return token_ids
        codes = token_ids.copy()
        for start, length, id_ in spans:
            run = codes[start : start + length]
            for token in np.unique(run).tolist():
                first, rest = self._codes((id_, token), intern)
                at = np.flatnonzero(token_ids[start : start + length] == token)
                run[at] = rest
                if at[0] == 0:
                    run[0] = first
        return codes

    def _codes(self, pair: _Pair, intern: bool) -> tuple[int, int]:
        number = self._number_of.get(pair)
        if number is None:
            if not intern:
                return UNKNOWN, UNKNOWN
            number = self._next
            if 2 * number + 2 >= 2**31:
                raise InvalidContentError(
                    "a tree must be reset after 2**30 different contents; got as many"
                )
            self._next += 1
            self._fresh.append(number)
            self._number_of[pair], self._pair_of[number] = number, pair
        return -2 * number - 1, -2 * number - 2

    def retain(self, codes: Int32Array) -> None:
        """Count the content codes of a key that was stored."""
        for number, count in _numbers(codes):
            self._uses[number] = self._uses.get(number, 0) + count

    def release(self, codes: Int32Array) -> None:
        """Undo `retain` for codes that left the tree. Where memory runs out, nothing changes."""
        left = [(number, self._uses[number] - count) for number, count in _numbers(codes)]
        for number, uses in left:
            if uses:
                self._uses[number] = uses
            else:
                del self._uses[number]
                self._forget(number)

    def settle(self) -> None:
        """Forget what `encode` numbered and `retain` has not counted since."""
        for number in self._fresh:
            if number not in self._uses:
                self._forget(number)
        self._fresh.clear()

    def _forget(self, number: int) -> None:
        pair = self._pair_of.pop(number, None)
        if pair is not None:
            del self._number_of[pair]

    def uses(self) -> dict[int, int]:
        """Stored codes by number, for integrity checks."""
        return dict(self._uses)


def _numbers(codes: Int32Array) -> Iterable[tuple[int, int]]:
    inside = codes[codes < 0]
    if not inside.size:
        return ()
    numbers, counts = np.unique((-inside - 1) // 2, return_counts=True)
    return zip(numbers.tolist(), counts.tolist(), strict=True)


def count_codes(keys: Iterable[Int32Array]) -> dict[int, int]:
    """Content codes in `keys` by number."""
    total: dict[int, int] = {}
    for key in keys:
        for number, count in _numbers(key):
            total[number] = total.get(number, 0) + count
    return total


def read_content(
    content: Content, length: int, checked: bool
) -> Sequence[ContentSpan | tuple[int, int, bytes]]:
    """`check_content`, but for spans that were `checked` before."""
    is_read = checked and isinstance(content, list | tuple)
    if is_read and all(type(span) is ContentSpan for span in content):
        return content
    return check_content(content, length)


def check_content(content: Content, length: int) -> list[ContentSpan]:
    """`content` as spans; raises InvalidContentError naming the first bad one."""
    spans: list[ContentSpan] = []
    if content is NO_CONTENT:
        return spans
    end = 0
    for at, item in enumerate(_items(content)):
        span = _as_span(item, at)
        if span.start < end or span.length < 1 or span.start + span.length > length:
            raise InvalidContentError(
                f"content[{at}] must lie behind the span before it and inside the {length} tokens; "
                f"got {span.start} to {span.start + span.length}",
                index=at,
            )
        spans.append(span)
        end = span.start + span.length
    return spans


def _items(content: Content) -> Iterable[ContentSpan | tuple[int, int, bytes]]:
    try:
        if not isinstance(content, str | bytes):
            return iter(content)
    except TypeError:
        pass
    raise InvalidContentError(f"content must be (start, length, id: bytes) spans; got {content!r}")


def _as_span(item: ContentSpan | tuple[int, int, bytes], at: int) -> ContentSpan:
    try:
        span = ContentSpan(*item)
        good = is_int(span.start) and is_int(span.length) and isinstance(span.id, bytes)
    except TypeError:
        good = False
    if good and len(span.id) > LONGEST_ID_BYTES:
        raise InvalidContentError(
            f"content[{at}].id must be at most {LONGEST_ID_BYTES} bytes; got {len(span.id)}",
            index=at,
        )
    if not good:
        raise InvalidContentError(
            f"content[{at}] must be (start, length, id: bytes); got {item!r}", index=at
        )
    return ContentSpan(int(span.start), int(span.length), span.id)


def cut_content(content: Content, length: int) -> tuple[ContentSpan, ...]:
    """The spans of the first `length` tokens; a span across the cut keeps its beginning."""
    if not content:
        return ()
    spans = (ContentSpan(*item) for item in content)
    return tuple(
        ContentSpan(s.start, min(s.length, length - s.start), s.id)
        for s in spans
        if s.start < length
    )
