"""Which tree, which tickets and which reader run."""

from radixkv.cores import load
from radixkv.tree.radix_tree import RadixTree
from radixkv.tree.reader import Reader
from radixkv.tree.shares import NO_SHARES, Shares
from radixkv.tree.tickets import Tickets


def new_tree(
    page_size: int = 1,
    policy: str = "lru",
    core: str | None = None,
    shares: Shares = NO_SHARES,
) -> RadixTree:
    """An empty tree of the core that is to run.

    Parameters
    ----------
    page_size
        Tokens a page, 1 or more.
    policy
        What is evicted first, a name in `radixkv.tree.POLICIES`.
    core
        "native", "python", or None: RADIXKV_CORE if it is set, else native where it is built.
    shares
        Reserves and caps by salt, see `radixkv.tree.shares`.

    Returns
    -------
    RadixTree
        Without anything cached.

    Raises
    ------
    InvalidArgumentError
        For an unknown policy or core, a bad page size or share.
    CoreUnavailableError
        If the native core is asked for and not built.

    Examples
    --------
    >>> tree = new_tree()
    >>> tree.insert([1, 2, 3], [11, 12, 13]).prefix_length
    0
    >>> tree.match_prefix([1, 2, 9]).slots.tolist()
    [11, 12]
    """
    chosen: type[RadixTree] = load(
        core,
        native="radixkv.tree.native_tree:NativeRadixTree",
        python="radixkv.tree.python_tree:PythonRadixTree",
    )
    return chosen(page_size, policy, shares)


def new_tickets(num_tickets: int, core: str | None = None) -> Tickets:
    """So many free tickets, for a tree of the same core; see `Tickets`.

    core: as for `new_tree`. Raises InvalidArgumentError, CoreUnavailableError.

    >>> tickets = new_tickets(6)
    >>> tickets.take(3)
    array([0, 1, 2], dtype=int32)
    """
    chosen: type[Tickets] = load(
        core,
        native="radixkv.tree.native_tickets:NativeTickets",
        python="radixkv.tree.python_tickets:PythonTickets",
    )
    return chosen(num_tickets)


def new_reader(core: str | None = None) -> Reader:
    """What reads token ids in the core that is to run; see `new_tree` for `core` and the errors.

    Parameters
    ----------
    core
        "native" or "python"; None: as `RADIXKV_CORE` says, else the native one where it is built.

    Returns
    -------
    Reader
        Of that core.

    Examples
    --------
    >>> new_reader().token_ids(b"\\1\\0\\0\\0")
    array([1], dtype=int32)
    """
    reader: Reader = load(
        core,
        native="radixkv.tree.native_reader:NATIVE_READER",
        python="radixkv.tree.reader:PYTHON_READER",
    )
    return reader
