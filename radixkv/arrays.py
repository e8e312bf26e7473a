"""The array type of token ids and slots."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Int32Array: TypeAlias = NDArray[np.int32]

INT32_MAX = 2**31 - 1
EMPTY: Int32Array = np.empty(0, np.int32)
EMPTY.flags.writeable = False


def common_length(one: Int32Array, other: Int32Array) -> int:
    """How many leading items are equal.

    >>> common_length(np.array([1, 2, 3], np.int32), np.array([1, 2, 4, 5], np.int32))
    2
    """
    n = min(len(one), len(other))
    differ = one[:n] != other[:n]
    return int(differ.argmax()) if differ.any() else n
