"""Token ids and slots as int32 arrays, for callers that have no tree: clients, routers, logs.

A tree reads with the reader of its own core; these use the one that RADIXKV_CORE names.
"""

from functools import cache

from radixkv.arrays import Int32Array
from radixkv.tree.factory import new_reader
from radixkv.tree.reader import Reader, TokenIds


@cache
def _reader() -> Reader:
    """What the functions below use: as RADIXKV_CORE says when the first of them is called."""
    return new_reader()


def as_token_ids(values: TokenIds, name: str = "token_ids") -> Int32Array:
    """`values` as int32 of shape (n,), every id from 0 to 2**31 - 1.

    int32 buffers are read in place; `bytes` are little-endian int32; other integers are converted.
    Cost: O(n).

    Parameters
    ----------
    values
        (n,) integers: a list, an array, a buffer or `bytes` of little-endian int32.
    name
        What errors call the values.

    Returns
    -------
    Int32Array
        (n,) int32; the values themselves where they are that already.

    Raises
    ------
    InvalidTokensError
        Naming the first bad position.
    """
    return _reader().token_ids(values, name)


def as_slots(values: TokenIds, name: str = "slots") -> Int32Array:
    """`values` as int32 of shape (n,), every slot from 0 to 2**31 - 1; see `as_token_ids`.

    Parameters
    ----------
    values
        (n,) integers: a list, an array, a buffer or `bytes` of little-endian int32.
    name
        What errors call the values.

    Returns
    -------
    Int32Array
        (n,) int32, each from 0 to 2**31 - 1.

    Raises
    ------
    InvalidSlotsError
        For slots that the pool does not have.
    """
    return _reader().slots(values, name)


def read_message_ids(message: bytes, sequences: int, packed: int) -> list[Int32Array] | None:
    """The ids of each submessage in field `sequences` of a protobuf message.

    They are copied from the bytes in field `packed`. None unless every submessage has that field
    alone and valid ids in it, and always where no native core runs.
    """
    return _reader().read_message_ids(message, sequences, packed)
