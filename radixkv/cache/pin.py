"""A prefix that is kept, and what is stored below it: what `Loans` gives and takes."""

from dataclasses import dataclass
from typing import NamedTuple

from radixkv.arrays import Int32Array
from radixkv.tree import ContentSpan, Handle, Namespace


@dataclass(slots=True, eq=False)
class Pin:
    """A cached prefix that nothing evicts. Only `Loans` changes it.

    token_ids, slots: (n,) int32. handle: None once the cache was reset under it; its slots are
    then nobody else's until it is dropped, and it can no longer be stored below.
    """

    namespace: Namespace
    token_ids: Int32Array
    content: tuple[ContentSpan, ...]
    slots: Int32Array
    handle: Handle | None

    @property
    def shared(self) -> int:
        """Slots that are the tree's."""
        return len(self.slots) if self.handle is not None else 0

    @property
    def table(self) -> Int32Array:
        """The slots, by the name that a request has for them."""
        return self.slots


@dataclass(frozen=True, slots=True)
class Insert:
    """Tokens whose K/V is in `slots`, below `pin` or, without one, from the first token on.

    content: spans of these tokens; one that begins with the first of them continues a span of equal
    id that ends with the pin. keep: whether a pin on all of it remains.
    """

    token_ids: Int32Array
    slots: Int32Array
    content: tuple[ContentSpan, ...] = ()
    pin: Pin | None = None
    keep: bool = False


class Inserted(NamedTuple):
    """existing_length: tokens that were cached before. cached_length: that are now.

    replacements: the tree's slots for the tokens from the pin's end to existing_length; the
    borrower's own for these stay on loan. pin: on all that is cached, if it was to be kept.
    """

    existing_length: int
    cached_length: int
    replacements: Int32Array
    pin: Pin | None


def content_of(pin: Pin | None, insert: Insert) -> tuple[ContentSpan, ...]:
    """The spans of the pin's tokens and those below it."""
    if pin is None:
        return insert.content
    end = len(pin.token_ids)
    spans = [ContentSpan(end + start, length, id) for start, length, id in insert.content]
    last = pin.content[-1] if pin.content else None
    if last and spans and last.start + last.length == spans[0].start and last.id == spans[0].id:
        joined = ContentSpan(last.start, last.length + spans[0].length, last.id)
        return (*pin.content[:-1], joined, *spans[1:])
    return (*pin.content, *spans)
