"""What shares are: who may lose how much, worked out anew from what is cached."""

from typing import Any

from radixkv import Namespace
from radixkv.tree.shares import Shares

REST: Any = object()
NOBODY: Any = object()
Sizes = dict[Any, tuple[int, int]]  # of each share: evictable and protected tokens


class OracleShares:
    """spaces: a namespace of each share."""

    def __init__(self, shares: Shares, page_size: int) -> None:
        self.shares, self.page_size = shares, page_size
        self.spaces = [Namespace(salt=salt) for salt in shares]

    def of(self, space: Any) -> Any:
        """The share of a namespace."""
        if space is None:
            return NOBODY
        return space.salt if space.salt in self.shares else REST

    def may_give(self, space: Any, sizes: Sizes) -> dict[Any, int]:
        """What each share may lose for a namespace, of those that may lose any."""
        whom, rooms = self.of(space), {}
        for share in [REST, *self.shares]:
            evictable, protected = sizes.get(share, (0, 0))
            reserve = 0 if share is REST else self.shares[share].reserve
            spare = evictable + protected - -(-reserve // self.page_size) * self.page_size
            room = evictable if share == whom else min(evictable, spare)
            if room > 0:
                rooms[share] = room
        return rooms

    def room_for(self, space: Any, sizes: Sizes) -> int:
        return sum(self.may_give(space, sizes).values())

    def beyond_cap(self, space: Any, sizes: Sizes, wanted: int = 0) -> int:
        """What goes of its own so that `wanted` more tokens stay within the cap."""
        share = self.of(space)
        cap = None if share in (NOBODY, REST) else self.shares[share].cap
        if cap is None:
            return 0
        evictable, protected = sizes.get(share, (0, 0))
        cap -= cap % self.page_size
        coming = -(-wanted // self.page_size) * self.page_size
        return max(0, min(evictable, evictable + protected + coming - cap))
