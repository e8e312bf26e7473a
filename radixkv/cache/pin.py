"""A prefix that is kept."""

from radixkv.arrays import EMPTY, Int32Array
from radixkv.tree import ContentSpan, Handle, Namespace, RadixTree


class Pin:
    """A cached prefix that nothing evicts. Only `Loans` changes it.

    Its tokens and slots are the tree's: a pin costs some hundred bytes, whatever its length.
    handle: None once the cache was reset under it; its slots are then the pin's alone until it is
    dropped, and it can no longer be stored below. length: in tokens.
    """

    __slots__ = ("_kept", "_tree", "content", "handle", "length", "namespace")

    def __init__(
        self,
        tree: RadixTree,
        namespace: Namespace,
        content: tuple[ContentSpan, ...],
        handle: Handle,
    ) -> None:
        self._tree, self.namespace, self.content = tree, namespace, content
        self.handle: Handle | None = handle
        self.length = handle.length
        self._kept = EMPTY

    @property
    def slots(self) -> Int32Array:
        """(length,) int32. Cost: O(length)."""
        return self._kept if self.handle is None else self._tree.path_of(self.handle).slots

    @property
    def token_ids(self) -> Int32Array:
        """(length,) int32, negative inside content; none after a reset. Cost: O(length)."""
        return EMPTY if self.handle is None else self._tree.path_of(self.handle).codes

    @property
    def shared(self) -> int:
        """Slots that are the tree's."""
        return self.length if self.handle is not None else 0

    @property
    def table(self) -> Int32Array:
        """`slots`, (n,) int32, named as those of a request are."""
        return self.slots

    def void(self, slots: Int32Array) -> None:
        """The tree was forgotten: its slots are the pin's own from now on."""
        self._kept, self.handle = slots, None

    def __repr__(self) -> str:
        return f"<Pin length={self.length} {'held' if self.handle is not None else 'reset'}>"
