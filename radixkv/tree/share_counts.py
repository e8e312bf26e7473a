"""What is cached of each share of a tree of the Python core, and what of it may go."""

from dataclasses import dataclass

from radixkv.tree.namespace import Namespace
from radixkv.tree.shares import Shares, ShareSizes, in_pages


@dataclass(slots=True)
class ShareCount:
    """In tokens, whole pages; cap: None: no bound. evictable, protected: what is cached of it."""

    reserve: int = 0
    cap: int | None = None
    evictable: int = 0
    protected: int = 0

    @property
    def spare(self) -> int:
        """What may be evicted for others."""
        return min(self.evictable, max(self.evictable + self.protected - self.reserve, 0))

    def beyond_cap(self, coming: int = 0) -> int:
        """What is to be evicted so that `coming` more tokens stay within the cap."""
        if self.cap is None:
            return 0
        beyond = self.evictable + self.protected + coming - self.cap
        return min(self.evictable, max(beyond, 0))


class ShareCounts:
    """The shares by number; 0 is that of all namespaces without one of their own."""

    def __init__(self, shares: Shares, page_size: int) -> None:
        whole = in_pages(shares, page_size)
        self.all = [ShareCount(), *(ShareCount(each.reserve, each.cap) for each in whole)]
        self._numbers = {each.salt: number for number, each in enumerate(whole, start=1)}

    def number(self, namespace: Namespace) -> int:
        """Of the share of a namespace."""
        return self._numbers.get(namespace.salt, 0)

    def sizes(self) -> dict[str | None, ShareSizes]:
        """What is cached of each, by salt."""
        return {
            salt: ShareSizes(self.all[number].evictable, self.all[number].protected)
            for salt, number in self._numbers.items()
        }

    # ---- what happens ----

    def add(self, number: int, count: int) -> None:
        """`count` tokens became cached."""
        self.all[number].evictable += count

    def evict(self, number: int, count: int) -> None:
        """`count` tokens are cached no longer."""
        self.all[number].evictable -= count
        assert self.all[number].evictable >= 0

    def clear(self) -> None:
        """Nothing is cached any more."""
        for share in self.all:
            share.evictable = share.protected = 0

    # ---- what may go ----

    def may_give(self, whom: int | None) -> dict[int, int]:
        """How many tokens each share may lose for `whom`, of those that may lose any."""
        rooms = {
            number: share.evictable if number == whom else share.spare
            for number, share in enumerate(self.all)
        }
        return {number: room for number, room in rooms.items() if room}

    def room_for(self, whom: int | None) -> int:
        """What eviction can free for `whom`; None: for a caller of no share."""
        return sum(self.may_give(whom).values())
