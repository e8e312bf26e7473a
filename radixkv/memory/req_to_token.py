"""The request-to-token pool: row = request, column = position, value = slot."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from radixkv.arguments import at_least
from radixkv.arrays import Int32Array
from radixkv.errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch


class ReqToTokenPool:
    """`max_requests` rows of `max_context_len` int32 slots, on the host.

    Parameters
    ----------
    max_requests
        Rows.
    max_context_len
        Columns: tokens of the longest request.

    Attributes
    ----------
    rows
        (max_requests, max_context_len) int32. Memory is taken as rows fill, not at once.
    """

    def __init__(self, max_requests: int, max_context_len: int) -> None:
        self.max_requests = at_least(1, max_requests=max_requests)
        self.max_context_len = at_least(1, max_context_len=max_context_len)
        try:
            self.rows: Int32Array = np.zeros((self.max_requests, self.max_context_len), np.int32)
            self._free = list(range(self.max_requests - 1, -1, -1))
            self._is_held = bytearray(self.max_requests)
        except (MemoryError, ValueError, OverflowError):
            gib = 4 * self.max_requests * self.max_context_len / 2**30
            raise InvalidArgumentError(
                f"max_requests rows of max_context_len must fit in memory; got {max_requests:,} of "
                f"{max_context_len:,}, {gib:,.0f} GiB",
                max_requests=max_requests,
                max_context_len=max_context_len,
            ) from None

    @property
    def free_size(self) -> int:
        """Free rows."""
        return len(self._free)

    def allocate(self) -> int | None:
        """A free row, or None.

        Returns
        -------
        int | None
            Its number; None: all are taken.
        """
        if not self._free:
            return None
        row = self._free.pop()
        self._is_held[row] = True
        return row

    def free(self, row: int) -> None:
        """Take a row back.

        Parameters
        ----------
        row
            The row's number.

        Raises
        ------
        InvalidArgumentError
            For one that is free or out of range.
        """
        try:
            is_held = row >= 0 and self._is_held[row]
        except (IndexError, TypeError):
            is_held = False
        if not is_held:
            raise InvalidArgumentError(
                f"row must be held, one of 0 to {self.max_requests - 1}; got {row!r}"
            )
        self._is_held[row] = False
        self._free.append(row if type(row) is int else int(row))

    def page_table(self, rows: Sequence[int], width: int, device: Any = "cpu") -> "torch.Tensor":
        """The first `width` slots of each row, (len(rows), width) int32 on `device`.

        The copy goes through a fresh (on a GPU: pinned) buffer, so that a row may change while it
        is under way.

        Parameters
        ----------
        rows
            Numbers of rows.
        width
            Slots of each.
        device
            Where the result is, as torch names it.

        Returns
        -------
        torch.Tensor
            (len(rows), width) int32.
        """
        import torch

        self._check_there(np.asarray(rows, np.int64), width)
        on_gpu = torch.device(device).type == "cuda"
        staging = torch.empty((len(rows), width), dtype=torch.int32, pin_memory=on_gpu)
        np.take(self.rows[:, :width], rows, axis=0, out=staging.numpy())
        return staging.to(device, non_blocking=on_gpu)

    def _check_there(self, rows: NDArray[np.int64], width: int) -> None:
        wrong = (rows < 0) | (rows >= self.max_requests)
        if wrong.any():
            row = int(rows[wrong.argmax()])
            raise InvalidArgumentError(
                f"rows must be from 0 to {self.max_requests - 1}; got {row}", row=row
            )
        if not 0 <= width <= self.max_context_len:
            raise InvalidArgumentError(
                f"width must be from 0 to {self.max_context_len}; got {width}", width=width
            )
