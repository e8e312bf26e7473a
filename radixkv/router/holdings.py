"""Which holders hold which prefixes: one radix tree over the union of what all holders hold.

    root of a namespace
      └─ [1 2 3 4]       held whole by 0, 1 and 2
           ├─ [5 6 7]    held whole by 0; by 1 up to its second token
           └─ [8]        held whole by 2

A holder is a number: of a worker, or of a snapshot of it under way. Holdings are described as in
the event log (`radixkv/cache/events.py`): runs that are stored below one another and lose tokens
from their end. A holder that holds a token holds all tokens above it, so one walk down a prompt and
up its nodes gives how much of it each holder holds.

Two cores do the same: `native_holdings.py` (C++, `kernels/router/`) and `python_holdings.py`.
"""

from typing import NamedTuple, Protocol

from radixkv.arrays import Int32Array
from radixkv.router.pick_input import IntArray
from radixkv.tree.reader import TokenIds


class RunInfo(NamedTuple):
    """A run that a holder holds, see `radixkv.cache.runs.StoredRun`.

    parent_run 0: it starts at `root`.
    """

    run: int
    parent_run: int
    parent_offset: int
    codes: Int32Array
    root: int


class Holdings(Protocol):
    """The contract. Not thread-safe beyond what the interpreter's lock gives: one call at a time.

    `store` and `trim` return False for what cannot be true of a holder's history (an unknown run, a
    place that it does not hold, a page that it holds already, part of a page, a trim above a run
    that continues there); nothing is changed then. Nothing recurses.
    """

    core: str

    def add_holder(self, page_size: int = 1) -> int:
        """The number of a new holder, which holds nothing. Numbers are small and reused.

        page_size: of its cache. Its runs are whole pages, and two pages behind the same one may
        begin with the same tokens: those stay until both are gone.
        """
        ...

    def remove_holder(self, holder: int) -> None:
        """Forget all that it holds, and its number. Cost: see `clear`."""
        ...

    def add_root(self) -> int:
        """A new root: prefixes under different roots share nothing."""
        ...

    def remove_root(self, root: int) -> None:
        """Forget a root that is empty."""
        ...

    def is_empty_root(self, root: int) -> bool:
        """Whether no holder holds anything under it."""
        ...

    def store(
        self,
        holder: int,
        run: int,
        parent_run: int,
        parent_offset: int,
        codes: Int32Array | bytes,
        root: int,
    ) -> bool:
        """`holder` now holds `codes` behind the first `parent_offset` tokens of `parent_run`.

        parent_run 0: from `root` on. codes: (n,) int32, n > 0, or little-endian bytes; negative
        ones stand for content that only the holder knows, so no look-up matches from there on.
        Cost: O(n), and O(nodes) between the parent run's end and `parent_offset`.
        """
        ...

    def trim(self, holder: int, run: int, keep: int) -> bool:
        """`holder` keeps the first `keep` tokens of `run`. Cost: O(nodes that it gives up)."""
        ...

    def clear(self, holder: int) -> None:
        """`holder` holds nothing from now on. Cost: O(its runs and the nodes they pass)."""
        ...

    def lengths(
        self, token_ids: TokenIds, root: int, holders: IntArray | None = None
    ) -> Int32Array:
        """How many leading tokens of a prompt each holder holds: int32, in the order of `holders`.

        holders: numbers; None: from 0 on, all of them.

        Cost: O(len(token_ids)) compares, O(nodes on the path), O(holders).
        Raises InvalidTokensError.
        """
        ...

    def runs(self, holder: int) -> list[RunInfo]:
        """All that a holder holds, parents before what continues them."""
        ...

    def num_tokens(self, holder: int) -> int:
        """Tokens that a holder holds."""
        ...

    @property
    def num_nodes(self) -> int:
        """Nodes, roots apart."""
        ...

    @property
    def total_size(self) -> int:
        """Tokens that any holder holds, each counted once."""
        ...

    @property
    def num_bytes(self) -> int:
        """Bytes of memory that all of it takes, tokens included. Cost: O(nodes)."""
        ...

    def check_integrity(self) -> list[str]:
        """One line for each broken invariant; walks everything. Empty when all is well."""
        ...
