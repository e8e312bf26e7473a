"""Who holds which prefixes: one radix tree over the union of what all holders hold.

    root of a namespace
      └─ [1 2 3 4]       held whole by 0, 1 and 2
           ├─ [5 6 7]    held whole by 0; by 1 up to its second token
           └─ [8]        held whole by 2

A holder is a number: of a worker, or of a snapshot of it under way. What one holds speaks the
event log's words (`radixkv/cache/events.py`): runs that are stored below one another and lose
tokens from their end. A holder that holds a token holds all tokens above it, so walking a prompt
down once and the nodes up again tells how much of it each holder holds.

Two cores do the same: `native_holdings.py` (C++, `kernels/router/`) and `python_holdings.py`.
"""

from typing import NamedTuple, Protocol

from radixkv.cores import native_module
from radixkv.router.arrays import IntArray
from radixkv.tree.tokens import Int32Array, TokenIds


class HeldRun(NamedTuple):
    """A run that a holder holds, see `radixkv.cache.events.StoredRun`.

    parent_run 0: it starts at `root`.
    """

    run: int
    parent_run: int
    parent_offset: int
    codes: Int32Array
    root: int


class Holdings(Protocol):
    """The contract. Not thread-safe beyond what the interpreter's lock gives: one call at a time.

    `store` and `trim` answer False to what cannot be true of a holder's history (an unknown run, a
    place that it does not hold, tokens that it holds already, a trim above a run that continues
    there); nothing is changed then. Nothing recurses.
    """

    core: str

    def add_holder(self) -> int:
        """The number of a new holder, which holds nothing. Numbers are small and used again."""
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
        """Whether nobody holds anything under it."""
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
        ones name content that nobody outside knows, so no look-up matches from there on.
        Cost: O(n), and O(nodes) between the parent run's end and `parent_offset`.
        """
        ...

    def trim(self, holder: int, run: int, keep: int) -> bool:
        """`holder` keeps the first `keep` tokens of `run`. Cost: O(nodes that it gives up)."""
        ...

    def clear(self, holder: int) -> None:
        """`holder` holds nothing any more. Cost: O(its runs and the nodes they pass)."""
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

    def runs(self, holder: int) -> list[HeldRun]:
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
        """Tokens that anyone holds, each counted once however many hold it."""
        ...

    def check_integrity(self) -> list[str]:
        """One line for each broken invariant; walks everything. Empty when all is well."""
        ...


def new_holdings(core: str | None = None) -> Holdings:
    """Empty holdings of the core named, or of the best there is.

    core: "native", "python", or None: RADIXKV_CORE, else native where it is built.
    Raises InvalidArgumentError, CoreUnavailableError.
    """
    module = native_module(core, "radixkv.router.native_holdings")
    if module is not None:
        native: Holdings = module.NativeHoldings()
        return native
    from radixkv.router.python_holdings import PythonHoldings

    return PythonHoldings()
