"""A prefix that is kept."""

from dataclasses import dataclass

from radixkv.arrays import Int32Array
from radixkv.tree import ContentSpan, Handle, Namespace


@dataclass(slots=True, eq=False)
class Pin:
    """A cached prefix that nothing evicts. Only `Loans` changes it.

    token_ids, slots: (n,) int32. handle: None once the cache was reset under it; its slots are
    then the pin's alone until it is dropped, and it can no longer be stored below.
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
        """`slots`, (n,) int32, named as those of a request are."""
        return self.slots
