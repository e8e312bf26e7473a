"""What other processes hold of a cache, for requests that run there.

A pin keeps a cached prefix, as a request's lock does. A slot on loan belongs to its borrower alone,
as a request's private slots do, until it is stored, given back, or set aside at the borrower's end.

free ──allocate──> on loan ──store──> the tree
 ^                    │
 │   give_back        │ set_aside (the borrower may still be writing)
 └────────────────────┴──> aside ──> free
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from radixkv.arguments import as_flag, as_priority, at_least, between, list_of
from radixkv.arrays import EMPTY, Int32Array
from radixkv.cache.borrowers import MAX_BORROWER, Borrowers
from radixkv.cache.lookups import Lookups
from radixkv.cache.pin import Pin
from radixkv.cache.slots import Slots
from radixkv.cache.transaction import Transactions, ending, transaction
from radixkv.cache.weights import Weights
from radixkv.errors import (
    InvalidArgumentError,
    InvalidNamespaceError,
    InvalidSlotsError,
    SlotNotAllocatedError,
    StaleHandleError,
)
from radixkv.memory.allocator import check_distinct
from radixkv.pages import round_down, round_up
from radixkv.tree import DEFAULT, ContentSpan, Handle, Namespace, TokenIds
from radixkv.tree.content import Content, cut_content
from radixkv.tree.namespace import check_namespace
from radixkv.tree.reader import Reader


class Aside(NamedTuple):
    """What a borrower left behind that it may still be using: its slots, and pins that are void."""

    slots: Int32Array
    pins: list[Pin]


@dataclass(frozen=True, slots=True)
class Insert:
    """Tokens whose K/V is in `slots`, below `pin` or, without one, from the first token on.

    content: spans of these tokens; one that begins with the first of them continues a span of equal
    id that ends with the pin. keep: whether a pin on all of it remains. priority: what the policy
    of that name goes by; all tokens of the key have it at least.
    """

    token_ids: Int32Array
    slots: Int32Array
    content: tuple[ContentSpan, ...] = ()
    pin: Pin | None = None
    keep: bool = False
    priority: int = 0


class Inserted(NamedTuple):
    """existing_length: tokens that were cached before. cached_length: that are now.

    replacements: the tree's slots for the tokens from the pin's end to existing_length; the
    borrower's own for these stay on loan. pin: on all that is cached, if it was to be kept.
    """

    existing_length: int
    cached_length: int
    replacements: Int32Array
    pin: Pin | None


@final
class Loans:
    """Pins on a cache and slots on loan from it. Thread-safe, as the cache is.

    borrower_of: (num_slots + page_size,) int32, the borrower of each slot; 0: it is not on loan.
    """

    def __init__(
        self,
        reader: Reader,
        slots: Slots,
        weights: Weights,
        lookups: Lookups,
        transactions: Transactions,
    ) -> None:
        self.transactions, self._reader = transactions, reader
        self._slots, self._weights, self._lookups = slots, weights, lookups
        self.pins: set[Pin] = set()
        self._borrowers = Borrowers(slots.num_slots + slots.page_size)
        self.borrower_of = self._borrowers.of

    # ---- pins ----

    @transaction
    def pin(
        self,
        token_ids: TokenIds,
        namespace: Namespace = DEFAULT,
        *,
        content: Content = (),
        checked: bool = False,
    ) -> Pin:
        """A pin on the longest cached prefix, found and counted as `match_prefix` does.

        A miss gives a pin of length 0. checked: as for `PrefixCache.match_prefix`.
        Raises StaleWeightsError for other weights than the present, InvalidTokensError,
        InvalidContentError, InvalidNamespaceError.
        """
        tokens, spans = self._reader.key(token_ids, content, checked)
        present = self._weights.to_store(namespace)
        match = self._lookups.match(tokens, present, spans)
        pin = Pin(self._slots.tree, present, cut_content(spans, match.length), match.handle)
        self._hold(pin, match.handle)
        return pin

    def _hold(self, pin: Pin, handle: Handle) -> None:
        self.pins.add(pin)
        try:
            self._slots.tree.inc_lock_ref(handle)
        except MemoryError:
            self.pins.discard(pin)
            raise

    @ending
    def unpin(self, pin: Pin) -> None:
        """Drop a pin. Idempotent. Raises InvalidArgumentError for what is not a pin."""
        list_of(Pin, [pin], "pin")
        if pin in self.pins:
            self._drop(pin)
            self._slots.keep_bound()

    def _drop(self, pin: Pin) -> None:
        self.pins.discard(pin)
        if pin.handle is not None:
            self._slots.tree.dec_lock_ref(pin.handle)
        else:
            self._slots.ledger.give_back(pin.slots, None)

    @property
    def num_pins(self) -> int:
        """Pins on what is cached, those that a reset made void apart."""
        with self.transactions.lock:
            return len(self.valid_pins())

    def valid_pins(self) -> list[Pin]:
        """Those that no reset has made void."""
        return [pin for pin in self.pins if pin.handle is not None]

    # ---- slots ----

    @transaction
    def new_borrower(self) -> int:
        """A number that borrows nothing yet; `set_aside` ends it."""
        return self._borrowers.new()

    @transaction
    def allocate(
        self, borrower: int, n: int, namespace: Namespace | None = None
    ) -> tuple[Int32Array, int] | None:
        """Slots, (m,) int32, and how many tokens were evicted for them.

        m: `n` rounded up to whole pages. namespace: for which, see `RadixTree.evict`; None: not
        known. The answer None: no room now, nothing taken. Cost: as `RadixTree.evict`. Raises
        InvalidArgumentError for a negative number.
        """
        borrower = between(1, MAX_BORROWER, borrower=borrower)
        if namespace is not None:
            check_namespace(namespace)
        totals = self._slots.totals
        before = totals.evicted_tokens
        size = round_up(at_least(0, n=n), self._slots.page_size)
        slots = self._slots.take(size, namespace)
        if slots is None:
            return None
        try:
            self._borrowers.lend(borrower, slots)
        except MemoryError:
            self._slots.ledger.give_back(slots, None)
            raise
        return slots, totals.evicted_tokens - before

    @transaction
    def give_back(self, borrower: int, slots: TokenIds) -> None:
        """Free slots, (n,) int32, that are on loan to `borrower`, in whole pages, in any order.

        Raises InvalidSlotsError, SlotNotAllocatedError, and then nothing was freed.
        """
        given = self._reader.slots(slots)
        self._check_loaned(at_least(0, borrower=borrower), given)
        check_distinct(given)
        size = self._slots.page_size
        if len(np.unique(given // size)) * size != len(given):
            raise InvalidSlotsError(f"slots must be whole pages of {size}; got parts of some")
        self._slots.ledger.give_back(given, None)
        self._borrowers.end_loan(borrower, given)

    def slots_of(self, borrower: int) -> Int32Array:
        """What is on loan to `borrower`, (n,) int32, ascending. Cost: O(n log n)."""
        at_least(0, borrower=borrower)
        with self.transactions.lock:
            return self._borrowers.slots_of(borrower)

    @property
    def aside_size(self) -> int:
        """Slots set aside."""
        with self.transactions.lock:
            return self._borrowers.num_aside

    @property
    def num_loaned(self) -> int:
        """Slots on loan."""
        with self.transactions.lock:
            return self._borrowers.num_loaned

    @transaction
    def set_aside(self, borrower: int | None, pins: Sequence[Pin]) -> Aside:
        """End a borrower: drop its pins, keep its slots from everyone until `free_aside`.

        borrower: None if it had pins alone. Raises InvalidArgumentError for another type.
        """
        slots, pins = EMPTY, list_of(Pin, pins, "pins")
        if borrower is not None:
            slots = self._borrowers.set_aside(at_least(0, borrower=borrower))
        for pin in pins:
            if pin in self.pins and pin.handle is not None:
                self._drop(pin)
        self._slots.keep_bound()
        return Aside(slots, [pin for pin in pins if pin in self.pins])

    @transaction
    def free_aside(self, aside: Aside) -> None:
        """Free what was set aside. Raises InvalidArgumentError for anything else."""
        if not isinstance(aside, Aside):
            raise InvalidArgumentError(f"aside must be what set_aside gave; got {aside!r}")
        self._slots.ledger.give_back(aside.slots, None)
        self._borrowers.end_aside(aside.slots)
        for pin in aside.pins:
            if pin in self.pins:
                self._drop(pin)
        self._slots.keep_bound()

    # ---- storing ----

    @transaction
    def store(
        self,
        borrower: int,
        inserts: Sequence[Insert],
        namespace: Namespace = DEFAULT,
        *,
        checked: bool = False,
    ) -> list[Inserted]:
        """Store all of them, as one revision, or nothing; pins that are not kept are dropped.

        Whole pages of each are stored. Frees nothing: point your rows at the replacements, then
        give back the slots that they replace, once no kernel reads them.
        checked: tokens, slots and content of each are as a `Reader` gave them, not read again.
        Raises InvalidSlotsError, SlotNotAllocatedError, StaleHandleError,
        StaleWeightsError, and then nothing changed.
        """
        present = self._weights.to_store(namespace)
        borrower = at_least(0, borrower=borrower)
        trusted = checked is not False and as_flag(checked, "checked")
        # All is read before anything is checked: reading may call the cache.
        read = [self._read(each, trusted) for each in list_of(Insert, inserts, "inserts")]
        for insert in read:
            self._check(borrower, insert)
        check_distinct(np.concatenate([EMPTY, *(insert.slots for insert in read)]))
        pins = [insert.pin for insert in read if insert.pin is not None]
        if len(set(pins)) != len(pins):
            raise InvalidArgumentError("pins must be distinct; got one twice")
        if any(pin.namespace != present for pin in pins):
            raise InvalidNamespaceError(
                f"pins must be of the namespace that is stored, {present}; got one of another"
            )
        done: list[Inserted] = []
        on_loan = self._borrowers.num_loaned
        try:
            done.extend(self._store(borrower, insert, present) for insert in read)
        except MemoryError as error:
            # A borrower that still takes its slots for its own would write to the tree's.
            if done or self._borrowers.num_loaned != on_loan:
                self.transactions.refuse(f"a call that stores failed half-way with {error!r}")
            raise
        self._slots.keep_bound()
        return done

    def _store(self, borrower: int, insert: Insert, namespace: Namespace) -> Inserted:
        """The key is [0, pinned) of the pin and what comes below it.

        key     [ pin's | already there | new         | part of a page ]
                0     pinned        existing       length
                          replaced     handed over   stays on loan
        """
        tree, pin = self._slots.tree, insert.pin
        pinned = pin.length if pin else 0
        length = round_down(pinned + len(insert.token_ids), self._slots.page_size)
        content = cut_content(_content_of(pin, insert), length)
        result = tree.insert(
            _behind(pinned, insert.token_ids[: length - pinned]),
            insert.slots[: length - pinned],
            namespace,
            content=content,
            after=pin.handle if pin else None,
            priority=insert.priority,
            checked=True,
        )
        existing = result.prefix_length
        new = insert.slots[existing - pinned : length - pinned]
        self._borrowers.end_loan(borrower, new)
        self._slots.totals.published_tokens += len(new)
        kept = None
        if insert.keep:
            kept = Pin(tree, namespace, content, result.handle)
            self._hold(kept, result.handle)
        if pin is not None:
            self._drop(pin)
        return Inserted(existing, length, result.slots, kept)

    # ---- checks ----

    def _read(self, insert: Insert, trusted: bool) -> Insert:
        tokens, spans = self._reader.key(insert.token_ids, insert.content, trusted)
        slots = self._reader.slots_once(insert.slots, trusted)
        keep = as_flag(insert.keep, "keep")
        priority = as_priority(insert.priority)
        if insert.pin is not None:
            list_of(Pin, [insert.pin], "pin")
        content = tuple(ContentSpan(*span) for span in spans)
        return Insert(tokens, slots, content, insert.pin, keep, priority)

    def _check(self, borrower: int, insert: Insert) -> None:
        tokens, slots = insert.token_ids, insert.slots
        if len(tokens) != len(slots):
            raise InvalidSlotsError(
                f"slots must be one for each of {len(tokens)} tokens; got {len(slots)}"
            )
        self._check_loaned(borrower, slots)
        size = self._slots.page_size
        pages = slots[: round_down(len(slots), size)].reshape(-1, size)
        if len(pages) and not _are_pages(pages):
            raise InvalidSlotsError(
                f"slots of a whole page must be {size} in a row, from a multiple of {size}; "
                "got others"
            )
        pin = insert.pin
        if pin is not None and (pin not in self.pins or pin.handle is None):
            raise StaleHandleError("pin must be held; got one that was dropped or reset")

    def _check_loaned(self, borrower: int, slots: Int32Array) -> None:
        self._slots.allocator.check_range(slots)
        is_other = self.borrower_of[slots] != borrower
        if is_other.any():
            slot = int(slots[is_other.argmax()])
            raise SlotNotAllocatedError(
                f"slots must be on loan to this borrower; got {slot}, which is not", slot=slot
            )


def _behind(pinned: int, token_ids: Int32Array) -> Int32Array:
    """A key that ends with these, behind what a pin holds, which is not read again.

    The zeros are memory that is never touched, and so costs nothing.
    """
    if not pinned:
        return token_ids
    key = np.zeros(pinned + len(token_ids), np.int32)
    key[pinned:] = token_ids
    return key


def _are_pages(pages: Int32Array) -> bool:
    size = pages.shape[1]
    first = pages[:, :1]
    return bool((first % size == 0).all() and (pages == first + np.arange(size)).all())


def _content_of(pin: Pin | None, insert: Insert) -> tuple[ContentSpan, ...]:
    """The spans of the pin's tokens and those below it."""
    if pin is None:
        return insert.content
    end = pin.length
    spans = [ContentSpan(end + start, length, id) for start, length, id in insert.content]
    last = pin.content[-1] if pin.content else None
    if last and spans and last.start + last.length == spans[0].start and last.id == spans[0].id:
        joined = ContentSpan(last.start, last.length + spans[0].length, last.id)
        return (*pin.content[:-1], joined, *spans[1:])
    return (*pin.content, *spans)
