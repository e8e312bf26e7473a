"""What one worker's cache holds, kept up to date from its watch."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from radixkv.cache.events import Cleared, Event, Update
from radixkv.router.holdings import Holdings
from radixkv.router.spaces import Spaces
from radixkv.tree import Stored, Trimmed

MirrorState: TypeAlias = Literal["waiting", "current", "behind", "rebuilding"]
MirrorPosition: TypeAlias = tuple[int, int]

# Revisions that a watch may be behind before what it reported counts less.
_LAG_ALLOWED = 100
# Epochs that a worker has left, whose late updates are known as such.
_EPOCHS_KEPT = 16


class Mirror:
    """What one worker holds, and how current that is.

    state: "waiting" for its first update; "current"; "behind": an update was missed or cannot be
    true, a snapshot is needed; "rebuilding" while one is coming. Until it has come whole, what was
    known of the same epoch is still used; of another epoch nothing is.
    page_size, num_slots: of the worker's cache; None: no limit is known.
    num_unknown: changes that could not be true of what was known, such as more tokens than the
    worker has slots. num_late: updates of an epoch
    that the worker has left. num_computed: tokens that it reported as they became cached.
    """

    def __init__(
        self,
        holdings: Holdings,
        spaces: Spaces,
        clock: Callable[[], float],
        page_size: int,
        num_slots: int | None,
    ) -> None:
        self._holdings, self._spaces, self._clock = holdings, spaces, clock
        self.page_size, self._num_slots = page_size, num_slots
        self.holder = holdings.add_holder(page_size)
        self.state: MirrorState = "waiting"
        self.epoch = self.revision = 0
        self.updated_at = clock()
        self.num_unknown = self.num_late = self.num_computed = 0
        self._coming: int | None = None  # the holder of a snapshot under way
        self._left: deque[int] = deque(maxlen=_EPOCHS_KEPT)
        self._known_revision = 0

    @property
    def position(self) -> MirrorPosition | None:
        """The epoch and revision after which a watch may resume; None: take a snapshot."""
        return (self.epoch, self.revision) if self.state == "current" else None

    @property
    def lag(self) -> int:
        """Revisions that the worker is known to have made beyond those seen."""
        return max(self._known_revision - self.revision, 0)

    @property
    def is_stale(self) -> bool:
        """Whether a snapshot is missing, or the watch is known to be far behind."""
        return self.state != "current" or self.lag > _LAG_ALLOWED

    def note(self, epoch: int, revision: int) -> None:
        """The worker answered a call outside its watch with this epoch and revision."""
        if self.state == "waiting":
            return
        if epoch == self.epoch:
            self._known_revision = max(self._known_revision, revision)
        elif epoch not in self._left:
            self.lose()

    def lose(self) -> None:
        """An update was missed: follow nothing further until a snapshot has come."""
        self._drop_coming()
        self.state = "behind"

    def set_pool(self, page_size: int, num_slots: int | None) -> None:
        """The worker's pool, where it becomes known later; pages of another size are forgotten."""
        self._num_slots = num_slots
        if page_size == self.page_size:
            return
        self._drop_coming()
        self._holdings.remove_holder(self.holder)
        self.holder, self.page_size = self._holdings.add_holder(page_size), page_size
        if self.state != "waiting":
            self.state = "behind"

    def forget(self) -> None:
        """Give the holders back; the mirror is not used again."""
        self._drop_coming()
        self._holdings.remove_holder(self.holder)

    def apply(self, update: Update) -> None:
        """Follow the worker to the update's revision, or to "behind" where that cannot be."""
        if update.epoch in self._left:
            self.num_late += 1
            return
        self.updated_at = self._clock()
        if update.is_start:
            self._begin_snapshot(update.epoch)
        if self._coming is not None:
            self._rebuild(self._coming, update)
        elif update.epoch != self.epoch:
            self._enter(update)
        elif self.state == "current":
            self._follow(update)

    # ---- snapshots ----

    def _begin_snapshot(self, epoch: int) -> None:
        self._drop_coming()
        if epoch != self.epoch:
            self._change_epoch(epoch)
        self._coming = self._holdings.add_holder(self.page_size)
        self.state = "rebuilding"

    def _rebuild(self, coming: int, update: Update) -> None:
        if update.epoch != self.epoch or not self._change(coming, update.events):
            self.lose()
        elif update.is_whole:
            self._holdings.remove_holder(self.holder)
            self.holder, self._coming = coming, None
            self._arrive(update.revision)

    def _drop_coming(self) -> None:
        if self._coming is not None:
            self._holdings.remove_holder(self._coming)
            self._coming = None

    # ---- following ----

    def _enter(self, update: Update) -> None:
        """Another life of the worker's cache, known from its beginning on or not at all."""
        self._change_epoch(update.epoch)
        if _begins_epoch(update) and self._change(self.holder, update.events):
            self._arrive(update.revision)
        else:
            self.lose()

    def _follow(self, update: Update) -> None:
        if update.revision <= self.revision:
            return
        # Revisions have no gaps, and each has events.
        events = [event for event in update.events if event.revision > self.revision]
        is_next = bool(events) and events[0].revision == self.revision + 1
        if is_next and self._change(self.holder, events):
            self._arrive(update.revision)
        else:
            self.lose()

    def _arrive(self, revision: int) -> None:
        self.state, self.revision = "current", revision

    def _change_epoch(self, epoch: int) -> None:
        self._holdings.clear(self.holder)
        if self.epoch:
            self._left.append(self.epoch)
        self.epoch, self.revision, self._known_revision = epoch, 0, 0

    def _change(self, holder: int, events: Iterable[Event]) -> bool:
        """Whether all events could be true; those that can are applied, the others are left out."""
        before = self.num_unknown
        for event in events:
            change = event.change
            if isinstance(change, Stored):
                done = self._store(holder, change)
                if holder == self.holder:  # what a snapshot reports was computed before
                    self.num_computed += len(change.codes)
            elif isinstance(change, Trimmed):
                done = self._holdings.trim(holder, change.run, change.keep)
            else:
                self._holdings.clear(holder)
                done = True
            self.num_unknown += not done
        return self.num_unknown == before

    def _store(self, holder: int, change: Stored) -> bool:
        if self._num_slots is not None:
            held = self._holdings.num_tokens(holder)
            if held + len(change.codes) > self._num_slots:
                return False
        return self._holdings.store(
            holder,
            change.run,
            change.parent_run,
            change.parent_offset,
            change.codes,
            self._spaces.root(change.namespace),
        )


def _begins_epoch(update: Update) -> bool:
    """Whether nothing came before the update in its epoch: it begins with a reset, or with a
    process's first revision, 1."""
    if not update.events:
        return update.revision == 0
    first = update.events[0]
    return isinstance(first.change, Cleared) or first.revision == 1
