"""CUDA sources of this folder, compiled by NVRTC for Hopper, and their launches."""

import ctypes
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver, nvrtc
from torch import Tensor

_FOLDER = Path(__file__).parent
# Of a multiprocessor, for all its blocks. A block takes more shared memory than it asks for, and a
# warp's registers are counted in whole units.
_REGISTERS, _SHARED_BYTES = 64 * 1024, 228 * 1024
_SHARED_MORE, _REGISTER_UNIT = 1024, 256
# Of the arguments of a launch; what is neither is a pointer, or null.
_TYPES = {int: ctypes.c_int64, float: ctypes.c_float}


class Kernel:
    """A compiled function, loaded on a device, with what its launches have in common.

    name: of the source and the function. defined: its macros. threads: of a block, with so much
    shared memory.
    """

    def __init__(
        self, name: str, defined: dict[str, int], device: int, threads: int, shared_bytes: int
    ) -> None:
        self._device, self._threads, self.shared_bytes = device, threads, shared_bytes
        with torch.cuda.device(device):
            self._module = _checked(driver.cuModuleLoadData(_compiled(name, defined)))
        self._function = _checked(driver.cuModuleGetFunction(self._module, name.encode()))
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(driver.cuFuncSetAttribute(self._function, most, shared_bytes))
        # Kernels that divide a multiprocessor's memory otherwise between cache and shared memory
        # wait for one another.
        prefer = driver.CUfunc_cache.CU_FUNC_CACHE_PREFER_SHARED
        _checked(driver.cuFuncSetCacheConfig(self._function, prefer))
        asked = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS
        of_thread: int = _checked(driver.cuFuncGetAttribute(asked, self._function))
        units = -(-32 * of_thread // _REGISTER_UNIT)
        self._registers = threads // 32 * units * _REGISTER_UNIT

    def room(self) -> int:
        """Blocks that a multiprocessor runs at once."""
        by_shared = _SHARED_BYTES // (self.shared_bytes + _SHARED_MORE)
        return min(_REGISTERS // self._registers, by_shared)

    def launch(
        self, grid: tuple[int, int], *arguments: Tensor | int | float | None, beside_last: bool
    ) -> None:
        """On the present stream. arguments: tensors as pointers, None as null, int as 64 bits.

        beside_last: may start before the kernel launched before has ended, see
        `griddepcontrol`.
        """
        types = tuple(_TYPES.get(type(each), ctypes.c_void_p) for each in arguments)
        values = tuple(x.data_ptr() if isinstance(x, Tensor) else x or 0 for x in arguments)
        with torch.cuda.device(self._device):
            config = self._config(grid, torch.cuda.current_stream(self._device), beside_last)
            _checked(driver.cuLaunchKernelEx(config, self._function, (values, types), 0))

    def _config(self, grid: tuple[int, int], stream: torch.cuda.Stream, beside_last: bool) -> Any:
        # Made new each time: other threads launch the same function.
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = *grid, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = self._threads, 1, 1
        config.sharedMemBytes, config.hStream = self.shared_bytes, stream.cuda_stream
        config.attrs = [_beside()] if beside_last else []
        config.numAttrs = len(config.attrs)
        return config


def _beside() -> Any:
    attribute = driver.CUlaunchAttribute()
    names = driver.CUlaunchAttributeID
    attribute.id = names.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    return attribute


def _compiled(name: str, defined: dict[str, int]) -> bytes:
    source, header = _FOLDER / f"{name}.cu", _FOLDER / "hopper.cuh"
    named = [header.read_bytes()], [header.name.encode()]
    created = nvrtc.nvrtcCreateProgram(source.read_bytes(), source.name.encode(), 1, *named)
    program = _checked(created)
    options = [b"--gpu-architecture=sm_90a", b"--std=c++17"]
    options += [f"-D{key}={value}".encode() for key, value in defined.items()]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(result):
        log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program))
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"{source.name} does not compile: {log.decode()}")
    image: bytes = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))  # filled in place
    _checked(nvrtc.nvrtcGetCUBIN(program, image))
    return image


def _checked(answer: tuple[Any, ...]) -> Any:
    result, *values = answer
    if int(result):
        raise RuntimeError(f"CUDA answered {result!r}")
    return values[0] if values else None
