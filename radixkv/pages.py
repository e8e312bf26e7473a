"""Sizes in whole pages."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Sizes = TypeVar("Sizes", int, NDArray[np.int32])


def ceil_div(n: Sizes, size: int) -> Sizes:
    """How many pieces of `size` hold `n`."""
    return -(-n // size)


def round_up(n: int, page_size: int) -> int:
    """`n` tokens in whole pages, not fewer."""
    return ceil_div(n, page_size) * page_size


def round_down(n: int, page_size: int) -> int:
    """`n` tokens in whole pages, not more."""
    return n - n % page_size
