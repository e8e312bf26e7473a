"""The array type of token ids and slots."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from radixkv.errors import OutOfMemoryError

Int32Array: TypeAlias = NDArray[np.int32]
Int64Array: TypeAlias = NDArray[np.int64]

INT32_MAX = 2**31 - 1
EMPTY: Int32Array = np.empty(0, np.int32)
EMPTY.flags.writeable = False


def new_array(n: int) -> Int32Array:
    """(n,) int32, not written yet. Raises OutOfMemoryError."""
    try:
        return np.empty(n, np.int32)
    except MemoryError:
        raise OutOfMemoryError(
            f"a call must find the memory that it takes; there was none for {n} tokens"
        ) from None


def common_length(one: NDArray[Any], other: NDArray[Any]) -> int:
    """How many leading items are equal.

    >>> common_length(np.array([1, 2, 3], np.int32), np.array([1, 2, 4, 5], np.int32))
    2
    """
    n = min(len(one), len(other))
    differ = one[:n] != other[:n]
    return int(differ.argmax()) if differ.any() else n
