"""Small arrays that travel to a device together."""

import torch
from torch import Tensor

from radixkv.arrays import Int32Array


class DeviceArrays:
    """Named int32 arrays on a device that are brought there together, in one copy.

    Each keeps its place while it fits, so that captured graphs find it; `generation` counts moves.
    least: numbers that each array has room for from the start.
    """

    def __init__(self, device: torch.device, least: int = 4) -> None:
        self.generation = 0
        self._least = least
        self._device = device
        self._places: dict[str, slice] = {}
        self._buffer = torch.zeros(0, dtype=torch.int32, device=device)

    def put(self, **arrays: Int32Array) -> None:
        """Replace the arrays of these names, flattened. Always the same names."""
        if any(array.size > _size(self._places.get(name)) for name, array in arrays.items()):
            self._make_room(arrays)
        sent = staging(len(self._buffer), self._device)
        host = sent.numpy()
        for name, array in arrays.items():
            start = self._places[name].start
            host[start : start + array.size] = array.reshape(-1)
        self._buffer.copy_(sent, non_blocking=True)

    def __getitem__(self, name: str) -> Tensor:
        """The place of an array, which may be longer than the array."""
        return self._buffer[self._places[name]]

    def _make_room(self, arrays: dict[str, Int32Array]) -> None:
        start = 0
        for name, array in arrays.items():
            size = max(
                _size(self._places.get(name)), self._least, 1 << (array.size - 1).bit_length()
            )
            self._places[name] = slice(start, start + size)
            start += size
        self._buffer = torch.zeros(start, dtype=torch.int32, device=self._device)
        self.generation += 1


def staging(size: int, device: torch.device) -> Tensor:
    """(size,) int32 on the host, from which a copy to `device` need not be waited for."""
    return torch.empty(size, dtype=torch.int32, pin_memory=device.type == "cuda")


def _size(place: slice | None) -> int:
    return place.stop - place.start if place else 0
