"""Small arrays that travel to a device together."""

import torch
from torch import Tensor

from radixkv.arrays import Int32Array


class DeviceArrays:
    """Named int32 arrays on a device that are brought there together, in one copy.

    Each keeps its place while it fits, so that captured graphs find it; `generation` counts moves.
    room: numbers that arrays have room for from the start, by name; others have room for a few.
    """

    def __init__(self, device: torch.device, room: dict[str, int] | None = None) -> None:
        self.generation = 0
        self._device = device
        self._places: dict[str, slice] = {}
        self._buffer = torch.zeros(0, dtype=torch.int32, device=device)
        if room:
            self._make_room(room)

    def put(self, **arrays: Int32Array) -> None:
        """Replace the arrays of these names, flattened. Always the same names."""
        if any(array.size > _size(self._places.get(name)) for name, array in arrays.items()):
            self._make_room({name: array.size for name, array in arrays.items()})
        starts = {name: self._places[name].start for name in arrays}
        # Up to the last number that is new: places after it are larger than what is in them.
        sent = staging(max(starts[name] + each.size for name, each in arrays.items()), self._device)
        host = sent.numpy()
        for name, array in arrays.items():
            host[starts[name] : starts[name] + array.size] = array.reshape(-1)
        self._buffer[: len(sent)].copy_(sent, non_blocking=True)

    def __getitem__(self, name: str) -> Tensor:
        """The place of an array, which may be longer than the array."""
        return self._buffer[self._places[name]]

    def _make_room(self, sizes: dict[str, int]) -> None:
        start = 0
        for name, wanted in sizes.items():
            size = max(_size(self._places.get(name)), LEAST, 1 << max(wanted - 1, 0).bit_length())
            self._places[name] = slice(start, start + size)
            start += size
        self._buffer = torch.zeros(start, dtype=torch.int32, device=self._device)
        self.generation += 1


# Numbers that an array has room for. A multiple of 16 bytes, so that kernels may read four at once.
LEAST = 4


def staging(size: int, device: torch.device) -> Tensor:
    """(size,) int32 on the host, from which a copy to `device` need not be waited for."""
    return torch.empty(size, dtype=torch.int32, pin_memory=device.type == "cuda")


def _size(place: slice | None) -> int:
    return place.stop - place.start if place else 0
