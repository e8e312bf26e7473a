"""The contract of the tree. The same tests check it for every core (`tests/unit/test_tree.py`)."""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from radixkv.arrays import EMPTY, Int32Array, Int64Array
from radixkv.tree.content import Content, ContentSpan
from radixkv.tree.namespace import DEFAULT, Namespace, check_namespace
from radixkv.tree.reader import TokenIds
from radixkv.tree.shares import NO_SHARES, Shares, ShareSizes
from radixkv.tree.tickets import Tickets


class Handle:
    """A place in the tree, `length` tokens below the root of its namespace.

    Belongs to its tree and epoch. Valid while its tokens are cached, whatever is split around it; a
    locked handle keeps them cached.

    Attributes
    ----------
    length
        Tokens from the root to it.
    """

    length: int


class MatchResult(NamedTuple):
    """What is cached of a prompt.

    Attributes
    ----------
    length
        Tokens matched, in whole pages.
    slots
        (length,) int32, a copy.
    handle
        Of these.
    """

    length: int
    slots: Int32Array
    handle: Handle


class InsertResult(NamedTuple):
    """What an insert found.

    Attributes
    ----------
    prefix_length
        Tokens that were cached before.
    slots
        (prefix_length - after.length,) int32, the tree's own for these tokens, those of `after`
        left out.
    handle
        Of all whole pages of the key.
    """

    prefix_length: int
    slots: Int32Array
    handle: Handle


class InsertFromResult(NamedTuple):
    """As `InsertResult`. taken: the tickets of the tokens that are new, a slice where they follow
    one another, else (n,) int64.
    """

    prefix_length: int
    slots: Int32Array
    handle: Handle
    taken: slice | Int64Array


class KeptPath(NamedTuple):
    """codes, slots: (length,) int32 each, of the tokens of a handle; codes as in `NodeInfo`."""

    codes: Int32Array
    slots: Int32Array


class AdmitResult(NamedTuple):
    """length: tokens matched. handle: of these, locked; None: no room now. evicted: in tokens."""

    length: int
    handle: Handle | None
    evicted: int


class PublishResult(NamedTuple):
    """prefix_length: tokens that were cached before.

    handle: of the key's whole pages, locked; None if nothing was to stay locked.
    """

    prefix_length: int
    handle: Handle | None


class NodeInfo(NamedTuple):
    """A node as `walk` shows it. `codes` are token ids, or negative inside content spans.

    Attributes
    ----------
    id
        Its number, 1 or more.
    parent_id
        Its parent's; 0: it is a child of its namespace's root.
    namespace
        Whose tree of prefixes it is in.
    start
        Tokens above it.
    codes
        (n,) int32: token ids, or negative inside content spans.
    slots
        (n,) int32: their slots.
    lock_ref
        Locks on it and below.
    recency
        Larger where it was used later.
    hit_count
        Whole inserts that used it.
    priority
        The highest that it was inserted with.
    is_leaf
        Whether it has no children.
    run
        The stored run that it is part of.
    run_offset
        Tokens of that run before it.
    """

    id: int
    parent_id: int  # 0: a child of its namespace's root
    namespace: Namespace
    start: int  # tokens above it
    codes: Int32Array
    slots: Int32Array
    lock_ref: int
    recency: int
    hit_count: int
    priority: int
    is_leaf: bool
    run: int
    run_offset: int


class NodeFacts(NamedTuple):
    """A node without its tokens; see `NodeInfo`."""

    id: int
    parent_id: int
    namespace: Namespace
    start: int
    num_tokens: int
    lock_ref: int
    recency: int


class NodeTable(Protocol):
    """Every node as it was at one moment, depth first, parents before children."""

    def __len__(self) -> int: ...

    def facts(self, at: int) -> NodeFacts:
        """As it was then, whatever happened since."""

    def codes(self, at: int) -> Int32Array:
        """(n,) int32: as many of its tokens as are still cached, from the first one on."""


class WalkedTable:
    """A `NodeTable` that keeps what `walk` shows."""

    def __init__(self, nodes: Iterable[NodeInfo]) -> None:
        self._nodes = list(nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def facts(self, at: int) -> NodeFacts:
        node = self._nodes[at]
        return NodeFacts(
            node.id, node.parent_id, node.namespace, node.start, len(node.codes), node.lock_ref,
            node.recency,
        )  # fmt: skip

    def codes(self, at: int) -> Int32Array:
        return self._nodes[at].codes


@dataclass(frozen=True, slots=True)
class Stored:
    """Tokens became cached: run `run` continues `parent_run` after its first `parent_offset`
    tokens.

    parent_run 0: it starts at the root of `namespace`.

    Attributes
    ----------
    run
        Its number.
    parent_run
        The run that it continues; 0: it starts at the root.
    parent_offset
        Tokens of that run before it.
    codes
        (n,) int32, token ids or, inside content spans, negative numbers that name the content
        within this epoch.
    namespace
        Where it is cached.
    """

    run: int
    parent_run: int
    parent_offset: int
    codes: Int32Array
    namespace: Namespace


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Run `run` kept its first `keep` tokens; 0: it is gone.

    Attributes
    ----------
    run
        Its number.
    keep
        Tokens of it that stay; 0: it is gone.
    """

    run: int
    keep: int


Change: TypeAlias = Stored | Trimmed


class Changes(tuple[Change, ...]):
    """What changed, in order. The native core gives its own type, which makes them when it is read:
    few of those that a log keeps ever are. It has a length, an iterator and `num_bytes`.
    """

    __slots__ = ()

    @property
    def num_bytes(self) -> int:
        """Of the codes that were stored and the texts of their namespaces."""
        stored = [change for change in self if isinstance(change, Stored)]
        return sum(change.codes.nbytes + change.namespace.num_bytes for change in stored)


NO_CHANGES = Changes()


class RunParts(Protocol):
    """What was resident at some moment, run by run, while the tree changes between the parts.

    What was stored since is missing, of what was trimmed since any part may be. So with the changes
    since that moment replayed on all parts together, this is exactly what is resident.
    """

    @property
    def is_done(self) -> bool:
        """Whether all runs were taken."""

    def sort(self) -> None:
        """Have them come by number, and so each after its parent. Before any is taken; needs no
        lock, as the tree is not read."""

    def take(self, num_tokens: int) -> list[Stored]:
        """The next runs, of about so many tokens. Cost: O(tokens).

        Raises StaleHandleError once the tree was reset.
        """


class TreeCheck(Protocol):
    """Every invariant of a tree, some nodes at a time, between which the tree may change.

    What is true of a node and its neighbours at every moment is checked when the node's turn comes.
    Sums over all nodes are kept for those whose turn has come, whatever happens to them later, and
    compared once the last has come. So what is sound is never reported, however the tree changes
    meanwhile, and what is broken from the first turn to the last always is.
    """

    @property
    def is_done(self) -> bool:
        """Whether all was checked. From then on only `marks` is of use."""

    def take(self, num_nodes: int) -> list[str]:
        """The turn of so many nodes, or fewer where they are long, and at last that of the sums.

        One line for each broken invariant. Cost: in the native core some 1 us a node, at last
        O(locked nodes). Raises StaleHandleError once the tree was reset.
        """

    def marks(self, first: int, end: int) -> NDArray[np.bool_]:
        """(end - first,) bool: which slots from `first` to `end` the tree holds now.

        Raises StaleHandleError once the tree was reset.
        """

    def close(self) -> None:
        """Follow the tree no longer, which costs each change of it a little."""


class Ledger(Protocol):
    """What keeps the slots outside the tree: see `radixkv.cache.ledger.SlotLedger`.

    The native tree takes only the native ledger, which it reads without Python.
    """

    @property
    def free_size(self) -> int: ...
    @property
    def deferred_size(self) -> int: ...
    def check_range(self, slots: Int32Array) -> None: ...
    def take(self, n: int) -> Int32Array | None: ...
    def give_back(self, slots: Int32Array, fence: Any) -> None: ...
    def free(self, slots: Int32Array, fence: Any = None) -> None: ...
    def retire(self, slots: Int32Array, readers: Int32Array) -> None: ...


class RadixTree:
    """A radix tree over token ids whose nodes hold the slots of their tokens.

    A contract: `new_tree` makes one. Nothing recurses. Not thread-safe: `PrefixCache` puts a lock
    around it.

    Parameters
    ----------
    page_size
        Tokens a page, 1 or more; keys are shared and evicted in whole pages.
    policy
        What is evicted first, a name in `radixkv.tree.POLICIES`.
    shares
        Reserves and caps by salt, see `radixkv.tree.shares`.

    Attributes
    ----------
    core
        Which one it is, "native" or "python".
    """

    page_size: int
    policy: str
    shares: Shares
    core: str
    epoch: int

    def __init__(self, page_size: int = 1, policy: str = "lru", shares: Shares = NO_SHARES) -> None:
        """Only a core has one: see `radixkv.tree.new_tree`."""
        raise TypeError("RadixTree is a contract; make a tree with radixkv.new_tree(...)")

    def match_prefix(
        self,
        token_ids: TokenIds,
        namespace: Namespace = DEFAULT,
        *,
        content: Content = (),
        checked: bool = False,
    ) -> MatchResult:
        """Longest cached prefix of `token_ids`, rounded down to whole pages.

        Never changes the tree's shape. Refreshes the recency of the nodes matched whole; a node
        matched in part keeps its own. The slots stay valid only while the handle is locked.

        Cost: O(length) compares, O(nodes on the path) look-ups.

        Parameters
        ----------
        token_ids
            (n,) int32, n >= 0, ids >= 0.
        namespace
            What must be equal besides the tokens.
        content
            What placeholder tokens stand for, spans (start, length, id: bytes).
        checked
            The tokens are what a `Reader` gave, (n,) int32, the spans what `check_content` gave;
            neither is read again.

        Returns
        -------
        MatchResult
            The length matched, its slots as (length,) int32, and its handle.

        Raises
        ------
        InvalidTokensError
            For token ids that are not (n,) integers from 0 to 2**31 - 1.
        InvalidContentError
            For spans that overlap, or lie outside the prompt.
        """
        raise NotImplementedError

    def match_handle(
        self, token_ids: TokenIds, namespace: Namespace = DEFAULT, *, content: Content = ()
    ) -> Handle:
        """The handle of `match_prefix`, without the slots: `path_slots` gives them.

        Parameters
        ----------
        token_ids
            (n,) int32, n >= 0, each from 0 to 2**31 - 1; or what `as_token_ids` reads.
        namespace
            What must be equal besides the tokens.
        content
            What placeholder tokens stand for: `ContentSpan`s, or (start, length, id: bytes).

        Returns
        -------
        Handle
            Of what is cached.
        """
        raise NotImplementedError

    def path_slots(self, handle: Handle) -> Int64Array:
        """(handle.length,) int64, new: the slots of a handle's tokens.

        They stay valid only while the handle is locked. Cost: O(length).

        Parameters
        ----------
        handle
            A handle of this tree and epoch.

        Returns
        -------
        Int64Array
            (handle.length,) int64, new.

        Raises
        ------
        StaleHandleError
            For a handle of another tree or epoch, or of evicted tokens.
        """
        raise NotImplementedError

    def path_slices(self, handle: Handle, most: int) -> list[slice] | None:
        """`path_slots` as slices of slots that follow one another; None: they are more than `most`.

        Cost: O(nodes on the path) where each node's slots follow one another, else O(length).

        Parameters
        ----------
        handle
            A handle of this tree and epoch.
        most
            Slices to return at most.

        Returns
        -------
        list[slice] | None
            In the order of the tokens; None: they are more than `most`.

        Raises
        ------
        StaleHandleError
            For a handle of another tree or epoch, or of evicted tokens.
        InvalidArgumentError
            For a value out of range.
        """
        raise NotImplementedError

    def match_batch(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT, *, checked: bool = False
    ) -> list[MatchResult]:
        """`match_prefix` of each prompt, in order; a bad prompt raises before anything changes.

        The native core lets other threads run meanwhile: the prompts must not change.

        Parameters
        ----------
        prompts
            Prompts, each as `token_ids` of `match_prefix`.
        namespace
            What must be equal besides the tokens.
        checked
            As for `match_prefix`.

        Returns
        -------
        list[MatchResult]
            One a prompt, in order.
        """
        raise NotImplementedError

    def match_lengths(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT, *, checked: bool = False
    ) -> list[int]:
        """The lengths of `match_batch`, without the slots; counts as a use like any match.

        Parameters
        ----------
        prompts
            Prompts, each as `token_ids` of `match_prefix`.
        namespace
            What must be equal besides the tokens.
        checked
            The tokens and spans were read and checked before, and are not read again.

        Returns
        -------
        list[int]
            Tokens cached of each prompt.
        """
        raise NotImplementedError

    def probe(
        self,
        token_ids: TokenIds,
        namespace: Namespace = DEFAULT,
        *,
        content: Content = (),
        checked: bool = False,
    ) -> int:
        """How many tokens `match_prefix` would match; changes nothing, not even recency.

        Parameters
        ----------
        token_ids
            (n,) int32, n >= 0, each from 0 to 2**31 - 1; or what `as_token_ids` reads.
        namespace
            What must be equal besides the tokens.
        content
            What placeholder tokens stand for: `ContentSpan`s, or (start, length, id: bytes).
        checked
            The tokens and spans were read and checked before, and are not read again.

        Returns
        -------
        int
            Tokens.
        """
        raise NotImplementedError

    def probe_batch(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT, *, checked: bool = False
    ) -> list[int]:
        """`probe` of each prompt, in order; a bad prompt raises before any answer.

        The native core lets other threads run meanwhile: the prompts must not change.

        Parameters
        ----------
        prompts
            Prompts, each as `token_ids` of `match_prefix`.
        namespace
            What must be equal besides the tokens.
        checked
            The tokens and spans were read and checked before, and are not read again.

        Returns
        -------
        list[int]
            Tokens cached of each prompt.
        """
        raise NotImplementedError

    def inc_lock_ref(self, handle: Handle) -> None:
        """Protect exactly the handle's tokens from eviction, once more.

        A handle that ends inside a node splits it there; then the path of the head is refreshed
        (the rest keeps its recency). Cost: O(nodes on the path).

        Parameters
        ----------
        handle
            A handle of this tree and epoch.

        Raises
        ------
        StaleHandleError
            For a handle of another tree, another epoch or evicted tokens.
        """
        raise NotImplementedError

    def dec_lock_ref(self, handle: Handle) -> None:
        """Undo one `inc_lock_ref`; refreshes nothing.

        Parameters
        ----------
        handle
            A handle of this tree and epoch.

        Raises
        ------
        NotLockedError
            For a handle that is not locked.
        StaleHandleError
            For a handle of another tree or epoch, or of evicted tokens.
        """
        raise NotImplementedError

    def insert(
        self,
        token_ids: TokenIds,
        slots: TokenIds,
        namespace: Namespace = DEFAULT,
        *,
        content: Content = (),
        priority: int = 0,
        chunked: bool = False,
        after: Handle | None = None,
        checked: bool = False,
    ) -> InsertResult:
        """Store the whole pages of `token_ids`; what is not there yet is stored with its `slots`.

        Frees nothing: the caller first points its row at the returned slots, then frees its
        duplicates. Refreshes the path; priorities on it rise to `priority`.

        Cost: O(length) compares and copies.

        Parameters
        ----------
        token_ids
            (n,) int32, n >= 0, each from 0 to 2**31 - 1; or what `as_token_ids` reads.
        slots
            (n,) int32, one a token.
        namespace
            What must be equal besides the tokens.
        content
            What placeholder tokens stand for: `ContentSpan`s, or (start, length, id: bytes).
        priority
            What the policy `priority` goes by, -2**31 to 2**31 - 1.
        chunked
            More of this key is coming, so the path's hit counts wait for the last insert.
        after
            A locked handle of the key's beginning. Its tokens are not compared again (the caller
            guarantees them), and `slots` are those of the tokens behind it.
        checked
            As for `match_prefix`, slots included.

        Returns
        -------
        InsertResult
            The length cached before, the tree's slots for it as int32, and the key's handle.

        Raises
        ------
        InvalidTokensError
            For token ids that are not (n,) integers from 0 to 2**31 - 1.
        InvalidSlotsError
            For slots that the pool does not have.
        InvalidContentError
            For spans that overlap, or lie outside the prompt.
        InvalidArgumentError
            For a value out of range.
        NotLockedError
            For a handle that is not locked.
        StaleHandleError
            And then nothing changed.
        """
        raise NotImplementedError

    def insert_from(
        self,
        token_ids: TokenIds,
        tickets: Tickets,
        namespace: Namespace = DEFAULT,
        *,
        priority: int = 0,
        chunked: bool = False,
        after: Handle | None = None,
    ) -> InsertFromResult:
        """`insert` with tickets for slots, taken for just those tokens that are not there yet.

        Parameters
        ----------
        token_ids
            (n,) int32, n >= 0, each from 0 to 2**31 - 1; or what `as_token_ids` reads.
        tickets
            Of this tree's core. What the tree evicts the caller gives back to them.
        namespace
            What must be equal besides the tokens.
        priority
            What the policy `priority` goes by, -2**31 to 2**31 - 1.
        chunked
            See `insert`.
        after
            See `insert`.

        Returns
        -------
        InsertFromResult
            As of `insert`, and the tickets that were taken.

        Raises
        ------
        OutOfSlotsError
            Where fewer tickets are free; other errors and the cost are those of `insert`.
        """
        raise NotImplementedError

    def admit(
        self,
        token_ids: Int32Array,
        ledger: Ledger,
        row: Int32Array,
        namespace: Namespace = DEFAULT,
        *,
        content: Sequence[ContentSpan] = (),
        max_cached: int | None = None,
        extra: int = 0,
        length: int | None = None,
    ) -> AdmitResult:
        """Match, lock, evict and allocate in one call: `row` gets slots for all tokens and `extra`
        more, in whole pages.

        Without room now nothing stays taken, though tokens may have been evicted whose slots wait
        behind a fence.

        The caller has checked the tokens (`as_token_ids`), the spans (`check_content`) and the
        namespace; nothing is checked again. Cost: as `match_prefix`, `inc_lock_ref` and `evict`.

        Parameters
        ----------
        token_ids
            (n,) int32, checked.
        ledger
            What keeps the slots outside the tree.
        row
            (m,) int32, written to.
        namespace
            What must be equal besides the tokens.
        content
            Checked spans.
        max_cached
            Most tokens to match; None: all.
        extra
            Slots beyond those of the tokens.
        length
            The first so many of `token_ids` are meant; None: all.

        Returns
        -------
        AdmitResult
            Tokens matched, their handle, which is locked, and tokens evicted; handle None: no room
            now.

        Raises
        ------
        InvalidArgumentError
            For a row that is too short or cannot be written.
        """
        raise NotImplementedError

    def publish(
        self,
        token_ids: Int32Array,
        ledger: Ledger,
        row: Int32Array,
        namespace: Namespace = DEFAULT,
        *,
        content: Sequence[ContentSpan] = (),
        priority: int = 0,
        chunked: bool = False,
        held: Handle | None = None,
        fence: Any = None,
        length: int | None = None,
        unlock: bool = False,
    ) -> PublishResult:
        """Insert the tokens with the slots of `row`, and move the lock from `held` to all of them.

        [0, held.length) was the tree's and is not compared again (see `insert`, `after`).

            row     [ tree's | own, already there  | own, new      ]
                    0   held.length          prefix_length         n
                             remapped, then freed    handed over

        The row names the tree's slots before the duplicates are freed, behind `fence` if there is
        one. What the caller has checked is as for `admit`. Cost and errors are those of `insert`;
        after an error nothing changed.

        Parameters
        ----------
        token_ids
            (n,) int32, checked.
        ledger
            What keeps the slots outside the tree.
        row
            (m,) int32, written to.
        namespace
            What must be equal besides the tokens.
        content
            Checked spans.
        priority
            What the policy `priority` goes by, -2**31 to 2**31 - 1.
        chunked
            More of this key is coming; see `insert`.
        held
            The request's handle, locked; None: it has none.
        fence
            An object with `query()`, such as a CUDA event: freed slots wait until it is true.
        length
            The first so many of `token_ids` are meant; None: all.
        unlock
            Nothing stays locked.

        Returns
        -------
        PublishResult
            Tokens cached before, and the handle of the key, which is locked.
        """
        raise NotImplementedError

    def take(
        self, n: int, ledger: Ledger, namespace: Namespace | None = None
    ) -> tuple[Int32Array | None, int]:
        """`n` free slots of `ledger`, (n,) int32, and how many tokens were evicted for them.

        Cost: as `evict`.

        Parameters
        ----------
        n
            Whole pages.
        ledger
            What keeps the slots outside the tree.
        namespace
            For whom, see `evict`. None, and nothing is taken, if there is no room now. Slots behind
            a fence count as room: if they suffice the answer is None too, and nothing is evicted
            for them.

        Returns
        -------
        tuple[Int32Array | None, int]
            (n,) int32, or None without room now; and tokens evicted.
        """
        slots = ledger.take(n)
        if slots is not None:
            return slots, 0
        missing = n - ledger.free_size - ledger.deferred_size
        if missing > self.room_for(namespace) or missing <= 0:
            return None, 0
        evicted = self.evict(missing, namespace, wanted=n)
        ledger.free(evicted)
        return ledger.take(n), len(evicted)

    def evict(
        self, num_tokens: int, namespace: Namespace | None = None, *, wanted: int = 0
    ) -> Int32Array:
        """Evict `num_tokens` tokens, rounded up to whole pages; returns their slots, (m,) int32.

        Leaves first, in the order of the policy; the last victim is trimmed from its tail. Fewer if
        `room_for` the namespace is less.

        Cost: O(m), and O(log leaves) a victim, whatever else is cached; O(shares) more where there
        are any.

        Parameters
        ----------
        num_tokens
            Tokens, rounded up to whole pages.
        namespace
            For whom. What is within the reserve of another share stays, and so does all that is
            within one where there is no namespace.
        wanted
            Tokens that it is about to store: of its own share first goes what they would bring
            beyond the cap.

        Returns
        -------
        Int32Array
            (m,) int32: the slots that are free now.

        Raises
        ------
        InvalidArgumentError
            For a negative number.
        """
        raise NotImplementedError

    def evict_below(
        self, token_ids: TokenIds, namespace: Namespace = DEFAULT, *, content: Content = ()
    ) -> Int32Array:
        """Evict all that continues `token_ids` and is under no lock; returns its slots, (m,) int32.

        `token_ids` stay cached; without any, all of the namespace goes. Where they are not cached
        whole, nothing is below them. Cost: as `match_prefix`, and O(nodes below).

        Parameters
        ----------
        token_ids
            (n,) int32, n >= 0, each from 0 to 2**31 - 1; or what `as_token_ids` reads.
        namespace
            What must be equal besides the tokens.
        content
            What placeholder tokens stand for: `ContentSpan`s, or (start, length, id: bytes).

        Returns
        -------
        Int32Array
            (m,) int32: the slots that are free now.

        Raises
        ------
        InvalidArgumentError
            For a part of a page.
        InvalidTokensError
            For token ids that are not (n,) integers from 0 to 2**31 - 1.
        InvalidContentError
            For spans that overlap, or lie outside the prompt.
        """
        raise NotImplementedError

    def path_of(self, handle: Handle) -> KeptPath:
        """The tokens of a handle and their slots, copies. Refreshes nothing. Cost: O(length).

        Parameters
        ----------
        handle
            A handle of this tree and epoch.

        Returns
        -------
        KeptPath
            (length,) int32 each, copies.

        Raises
        ------
        StaleHandleError
            For a handle of another tree or epoch, or of evicted tokens.
        """
        raise NotImplementedError

    def evict_beyond_caps(self) -> Int32Array:
        """Evict what shares keep beyond their caps, besides what is locked; returns the slots.

        Cost: O(shares), and as `evict`.

        Returns
        -------
        Int32Array
            (m,) int32: the slots that are free now.
        """
        raise NotImplementedError

    def advance_clock(self, milliseconds: int) -> None:
        """The time of the requests that follow, for policies that count ages by a clock.

        Of any clock that goes forward; one that goes back counts as no time passed. The same times
        give the same victims: with several ranks, give the time that came with the request.

        Parameters
        ----------
        milliseconds
            The time now, in milliseconds, which only grows.

        Raises
        ------
        InvalidArgumentError
            For a time below 0.
        """
        raise NotImplementedError

    def room_for(self, namespace: Namespace | None = None) -> int:
        """Tokens that `evict` can free now for a namespace; None: for a caller of no namespace.

        Without shares: `evictable_size`. Cost: O(shares).

        Parameters
        ----------
        namespace
            For whom; None: for a caller of no namespace.

        Returns
        -------
        int
            Tokens.
        """
        raise NotImplementedError

    def share_sizes(self) -> dict[str | None, ShareSizes]:
        """What is cached now of each share, by salt. Cost: O(shares).

        Returns
        -------
        dict[str | None, ShareSizes]
            Tokens cached and locked, by salt.
        """
        raise NotImplementedError

    def evict_to(self, tickets: Tickets, num_tokens: int, most: int) -> list[slice] | Int64Array:
        """`evict`, with what it returns given back to `tickets`: slices of tickets that follow one
        another if those are at most `most`, else (m,) int64.

        Parameters
        ----------
        tickets
            What all slots in the tree were taken from; for any other the tokens are evicted and
            SlotNotAllocatedError is raised. Cost and errors as `evict`.
        num_tokens
            Tokens, rounded up to whole pages.
        most
            Slices to return at most.

        Returns
        -------
        list[slice] | Int64Array
            Slices of tickets, or (m,) int64 where they are more than `most`.
        """
        raise NotImplementedError

    def evict_into(self, num_tokens: int, ledger: Ledger, fence: Any = None) -> int:
        """`evict`, in one step with `ledger.free(slots, fence)`; tokens evicted.

        Parameters
        ----------
        num_tokens
            Tokens, rounded up to whole pages.
        ledger
            What keeps the slots outside the tree.
        fence
            An object with `query()`, such as a CUDA event: freed slots wait until it is true.

        Returns
        -------
        int
            Tokens.
        """
        slots = self.evict(num_tokens)
        ledger.free(slots, fence)
        return len(slots)

    def evict_below_into(
        self,
        token_ids: TokenIds,
        ledger: Ledger,
        namespace: Namespace = DEFAULT,
        *,
        content: Content = (),
    ) -> int:
        """`evict_below`, in one step with `ledger.free(slots)`; tokens evicted.

        Parameters
        ----------
        token_ids
            (n,) int32, n >= 0, each from 0 to 2**31 - 1; or what `as_token_ids` reads.
        ledger
            What keeps the slots outside the tree.
        namespace
            What must be equal besides the tokens.
        content
            What placeholder tokens stand for: `ContentSpan`s, or (start, length, id: bytes).

        Returns
        -------
        int
            Tokens.
        """
        slots = self.evict_below(token_ids, namespace, content=content)
        if len(slots):
            ledger.free(slots)
        return len(slots)

    def evict_beyond_caps_into(self, ledger: Ledger, fence: Any = None) -> int:
        """`evict_beyond_caps` in one step with `ledger.free(slots, fence)`; tokens evicted.

        Parameters
        ----------
        ledger
            What keeps the slots outside the tree.
        fence
            An object with `query()`, such as a CUDA event: freed slots wait until it is true.

        Returns
        -------
        int
            Tokens.
        """
        slots = self.evict_beyond_caps()
        if len(slots):
            ledger.free(slots, fence)
        return len(slots)

    def reset(self) -> Int32Array:
        """Forget everything, locks included, and return all slots. Every handle becomes stale.

        Returns
        -------
        Int32Array
            (m,) int32: the slots of all that was cached.
        """
        raise NotImplementedError

    def reset_into(self, ledger: Ledger, readers: Int32Array) -> None:
        """`reset`, in one step with `ledger.retire(slots, readers)`.

        Parameters
        ----------
        ledger
            What keeps the slots outside the tree.
        readers
            Slots that requests still read, (n,) int32.
        """
        ledger.retire(self.reset(), readers)

    @property
    def evictable_size(self) -> int:
        """Cached tokens under no lock."""
        raise NotImplementedError

    @property
    def protected_size(self) -> int:
        """Cached tokens under a lock."""
        raise NotImplementedError

    @property
    def total_size(self) -> int:
        """Cached tokens."""
        return self.evictable_size + self.protected_size

    @property
    def num_nodes(self) -> int:
        """Nodes, roots apart."""
        raise NotImplementedError

    def walk(self) -> Iterator[NodeInfo]:
        """Every node, depth first, parents before children. Do not change the tree meanwhile.

        Returns
        -------
        Iterator[NodeInfo]
            Of each node.
        """
        raise NotImplementedError

    def table(self) -> NodeTable:
        """Every node as it is now, to be read while the tree changes. Cost: O(nodes), in the native
        core some 100 ns each.

        Returns
        -------
        NodeTable
            Of each node.
        """
        return WalkedTable(self.walk())

    def runs(self) -> RunParts:
        """What is resident now, to be taken a part at a time. Cost: O(nodes), in the native core
        some 30 ns each.

        Returns
        -------
        RunParts
            The runs of what is cached.
        """
        raise NotImplementedError

    def track_changes(self) -> None:
        """Record from now on what is stored and evicted; call `take_changes` regularly."""
        raise NotImplementedError

    def take_changes(self) -> Changes:
        """What changed since the last call, in order; a split changes nothing.

        Empty if changes are not tracked.

        Returns
        -------
        Changes
            What was stored and evicted.
        """
        raise NotImplementedError

    def begin_check(self, num_slots: int | None = None) -> TreeCheck:
        """A check in slices, of all that is cached now and comes meanwhile.

        Parameters
        ----------
        num_slots
            One more than the largest slot of the pool. None: no pool is known, and larger slots
            than those of now may come.

        Returns
        -------
        TreeCheck
            To be taken slice by slice, and closed.
        """
        raise NotImplementedError

    def check_integrity(self) -> list[str]:
        """One line for each broken invariant; walks everything. Empty when all is well.

        Returns
        -------
        list[str]
            A line for each; empty when all is well.
        """
        check, lines = self.begin_check(), list[str]()
        try:
            while not check.is_done:
                lines += check.take(self.num_nodes + 1)
        finally:
            check.close()
        return lines

    def sizes_of(self, namespace: Namespace) -> tuple[int, int, int]:
        """Evictable tokens, locked tokens and nodes of one namespace.

        Cost: O(nodes); in the native core O(1).

        Parameters
        ----------
        namespace
            What must be equal besides the tokens.

        Returns
        -------
        tuple[int, int, int]
            Tokens, tokens, and nodes.
        """
        check_namespace(namespace)
        sizes, num_nodes = {False: 0, True: 0}, 0
        for node in self.walk():
            if node.namespace == namespace:
                sizes[node.lock_ref > 0] += len(node.codes)
                num_nodes += 1
        return sizes[False], sizes[True], num_nodes

    def locks(self) -> dict[Handle, int]:
        """The locked handles, with how often each is locked. Cost: O(handles).

        Returns
        -------
        dict[Handle, int]
            Times by handle.
        """
        raise NotImplementedError

    def namespace_of(self, handle: Handle) -> Namespace | None:
        """Where the handle's tokens are cached; None for a length of 0.

        Cost: O(depth).

        Parameters
        ----------
        handle
            A handle of this tree and epoch.

        Returns
        -------
        Namespace | None
            The namespace; None: the handle's length is 0.

        Raises
        ------
        StaleHandleError
            For a handle of another tree or epoch, or of evicted tokens.
        """
        raise NotImplementedError

    def all_slots(self) -> Int32Array:
        """(total_size,) int32: the slots of every cached token, in `walk` order.

        Returns
        -------
        Int32Array
            (total_size,) int32.
        """
        return np.concatenate([EMPTY, *(node.slots for node in self.walk())])

    def __copy__(self) -> "RadixTree":
        return deepcopy(self)  # two trees share nothing

    def __repr__(self) -> str:
        return (
            f"<RadixTree {self.core} page_size={self.page_size} policy={self.policy} "
            f"nodes={self.num_nodes} "
            f"evictable={self.evictable_size} protected={self.protected_size}>"
        )
