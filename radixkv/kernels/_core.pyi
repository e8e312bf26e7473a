from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radixkv.arrays import Int32Array, Int64Array
from radixkv.tree.content import Content
from radixkv.tree.namespace import Namespace
from radixkv.tree.radix_tree import (
    AdmitResult,
    Changes,
    InsertFromResult,
    InsertResult,
    KeptPath,
    MatchResult,
    NodeFacts,
    NodeInfo,
    PublishResult,
    Stored,
)
from radixkv.tree.radix_tree import Handle as ContractHandle
from radixkv.tree.radix_tree import Ledger as LedgerProtocol
from radixkv.tree.reader import TokenIds
from radixkv.tree.shares import Shares, ShareSizes
from radixkv.tree.tickets import Tickets

HAS_ASSERTIONS: bool

def read_ids(ids: object) -> Int32Array | None:
    """The ids of a list, a tuple or an int array, an int32 array itself; None where one is not a
    token id, or for all else."""

def copy_ids(ids: object) -> tuple[Int32Array, int] | None:
    """A copy of what `read_ids` reads, in an array with room for a quarter more, and its length."""

def append_ids(ids: object, buffer: Int32Array, at: int) -> int | None:
    """Writes what `read_ids` reads to `buffer` from `at` on; how many they are. None: as for it, or
    there is no room."""

def read_message_ids(message: bytes, sequences: int, packed: int) -> list[Int32Array] | None:
    """The ids of each submessage in field `sequences` of a protobuf message, copied from its bytes
    in field `packed`; None unless all have only that, and are token ids."""

class Handle(ContractHandle): ...

class Tree:
    """`radixkv.tree.RadixTree`, without what is the same for every core."""

    page_size: int
    policy: str
    shares: Shares
    epoch: int

    def __init__(self, page_size: int = 1, policy: str = "lru", shares: Shares = ...) -> None: ...
    def match_prefix(
        self,
        token_ids: TokenIds,
        namespace: Namespace = ...,
        *,
        content: Content = (),
        checked: bool = False,
    ) -> MatchResult: ...
    def match_handle(
        self, token_ids: TokenIds, namespace: Namespace = ..., *, content: Content = ()
    ) -> ContractHandle: ...
    def path_slots(self, handle: ContractHandle) -> Int64Array: ...
    def path_slices(self, handle: ContractHandle, most: int) -> list[slice] | None: ...
    def probe(
        self,
        token_ids: TokenIds,
        namespace: Namespace = ...,
        *,
        content: Content = (),
        checked: bool = False,
    ) -> int: ...
    def match_batch(
        self, prompts: Sequence[TokenIds], namespace: Namespace = ..., *, checked: bool = False
    ) -> list[MatchResult]: ...
    def match_lengths(
        self, prompts: Sequence[TokenIds], namespace: Namespace = ..., *, checked: bool = False
    ) -> list[int]: ...
    def probe_batch(
        self, prompts: Sequence[TokenIds], namespace: Namespace = ..., *, checked: bool = False
    ) -> list[int]: ...
    def inc_lock_ref(self, handle: ContractHandle) -> None: ...
    def dec_lock_ref(self, handle: ContractHandle) -> None: ...
    def path_of(self, handle: ContractHandle) -> KeptPath: ...
    def insert(
        self,
        token_ids: TokenIds,
        slots: TokenIds,
        namespace: Namespace = ...,
        *,
        content: Content = (),
        priority: int = 0,
        chunked: bool = False,
        after: ContractHandle | None = None,
        checked: bool = False,
    ) -> InsertResult: ...
    def insert_from(
        self,
        token_ids: TokenIds,
        tickets: Tickets,
        namespace: Namespace = ...,
        *,
        priority: int = 0,
        chunked: bool = False,
        after: ContractHandle | None = None,
    ) -> InsertFromResult: ...
    def admit(
        self,
        token_ids: TokenIds,
        ledger: LedgerProtocol,
        row: Int32Array,
        namespace: Namespace = ...,
        *,
        content: Content = (),
        max_cached: int | None = None,
        extra: int = 0,
        length: int | None = None,
    ) -> AdmitResult: ...
    def publish(
        self,
        token_ids: TokenIds,
        ledger: LedgerProtocol,
        row: Int32Array,
        namespace: Namespace = ...,
        *,
        content: Content = (),
        priority: int = 0,
        chunked: bool = False,
        held: ContractHandle | None = None,
        fence: Any = None,
        length: int | None = None,
        unlock: bool = False,
    ) -> PublishResult: ...
    def evict(
        self, num_tokens: int, namespace: Namespace | None = None, *, wanted: int = 0
    ) -> Int32Array: ...
    def evict_below(
        self, token_ids: TokenIds, namespace: Namespace = ..., *, content: Content = ...
    ) -> Int32Array: ...
    def evict_below_into(
        self,
        token_ids: TokenIds,
        ledger: LedgerProtocol,
        namespace: Namespace = ...,
        *,
        content: Content = ...,
    ) -> int: ...
    def evict_beyond_caps(self) -> Int32Array: ...
    def advance_clock(self, milliseconds: int) -> None: ...
    def room_for(self, namespace: Namespace | None = None) -> int: ...
    def share_sizes(self) -> dict[str | None, ShareSizes]: ...
    def evict_to(
        self, tickets: Tickets, num_tokens: int, most: int
    ) -> list[slice] | Int64Array: ...
    def take(
        self, n: int, ledger: LedgerProtocol, namespace: Namespace | None = None
    ) -> tuple[Int32Array | None, int]: ...
    def evict_into(self, num_tokens: int, ledger: LedgerProtocol, fence: Any = None) -> int: ...
    def evict_beyond_caps_into(self, ledger: LedgerProtocol, fence: Any = None) -> int: ...
    def reset(self) -> Int32Array: ...
    def reset_into(self, ledger: LedgerProtocol, readers: Int32Array) -> None: ...
    @property
    def evictable_size(self) -> int: ...
    @property
    def protected_size(self) -> int: ...
    @property
    def total_size(self) -> int: ...
    @property
    def num_nodes(self) -> int: ...
    def track_changes(self) -> None: ...
    def take_changes(self) -> Changes: ...
    def all_slots(self) -> Int32Array: ...
    def sizes_of(self, namespace: Namespace) -> tuple[int, int, int]: ...
    def begin_check(self, num_slots: int | None = None) -> TreeCheck: ...
    def walk(self) -> Iterator[NodeInfo]: ...
    def table(self) -> NodeTable: ...
    def locks(self) -> dict[ContractHandle, int]: ...
    def namespace_of(self, handle: ContractHandle) -> Namespace | None: ...
    def runs(self) -> RunParts: ...
    def _counters(self) -> tuple[Any, ...]: ...
    def _restore(self, nodes: Iterable[NodeInfo], counters: tuple[Any, ...]) -> None: ...

class NodeTable:
    """`radixkv.tree.radix_tree.NodeTable`."""

    def __len__(self) -> int: ...
    def facts(self, at: int) -> NodeFacts: ...
    def codes(self, at: int) -> Int32Array: ...

class TreeCheck:
    """`radixkv.tree.radix_tree.TreeCheck`."""

    @property
    def is_done(self) -> bool: ...
    def take(self, num_nodes: int) -> list[str]: ...
    def marks(self, first: int, end: int) -> NDArray[np.bool_]: ...
    def close(self) -> None: ...

class RunParts:
    """`radixkv.tree.radix_tree.RunParts`."""

    is_done: bool

    def sort(self) -> None: ...
    def take(self, num_tokens: int) -> list[Stored]: ...

class SlotAllocator:
    """`radixkv.memory.TokenToKVAllocator`: the same slots, refusals and messages."""

    num_slots: int
    page_size: int

    def __init__(self, num_slots: int, page_size: int = 1) -> None: ...
    @property
    def free_size(self) -> int: ...
    def allocate(self, n: int) -> Int32Array | None: ...
    def free(self, slots: ArrayLike) -> None: ...
    def check_range(self, slots: Int32Array) -> None: ...
    def free_slots(self) -> Int32Array: ...
    def check_integrity(self) -> list[str]: ...
    def free_marks(self, first: int, end: int) -> NDArray[np.bool_]: ...

class TicketRing:
    """`radixkv.tree.tickets.Tickets`: the same tickets, refusals and messages."""

    num_tickets: int

    def __init__(self, num_tickets: int) -> None: ...
    @property
    def free_size(self) -> int: ...
    def take(self, n: int) -> Int32Array | None: ...
    def free(self, tickets: TokenIds) -> None: ...

class Ledger:
    """`radixkv.cache.ledger.SlotLedger`, as far as the tree's steps need it."""

    allocator: Any
    sharers: Int32Array
    is_retired: NDArray[np.bool_]
    deferred: deque[tuple[Any, Int32Array]]

    def __init__(self, allocator: SlotAllocator) -> None: ...
    @property
    def free_size(self) -> int: ...
    @property
    def deferred_size(self) -> int: ...
    def take(self, n: int) -> Int32Array | None: ...
    def give_back(self, slots: Int32Array, fence: Any) -> None: ...
    def free(self, slots: Int32Array, fence: Any = None) -> None: ...
