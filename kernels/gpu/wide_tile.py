"""Builds and launches `wide_tile.cu`: many query rows over one run of slots, on Hopper."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver, nvrtc
from torch import Tensor

from radixkv.kernels.gpu.attend import LOG2E, Softmax, Work

ROWS = 128  # query rows of an item
SLOTS, STAGES = 64, 3
DIMS = (64, 128)
DTYPES = (torch.bfloat16, torch.float16)
THREADS = 384
_SOURCE = Path(__file__).with_name("wide_tile.cu")


def attend_wide(
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    table: Tensor,
    work: Work,
    parts: Tensor,
    lse: Tensor,
    softmax: Softmax,
    *,
    page_size: int,
) -> None:
    """As `attend`, for items whose queries all see the whole run, without softcap or scales.

    q, k_pool, v_pool: one of DTYPES, the last dimension one of DIMS.
    """
    (_, heads, dim), kv_heads = q.shape, k_pool.shape[1]
    kernel = _kernel(q.device.index, heads, kv_heads, dim, page_size, q.dtype == torch.float16)
    pointers = [q, k_pool, v_pool, table]
    kernel.launch(
        (kv_heads, work.grid),
        (*(x.data_ptr() for x in pointers), table.stride(0), work.items.data_ptr(),
         work.count.data_ptr(), work.members.data_ptr(), parts.data_ptr(), lse.data_ptr(),
         softmax.scale * LOG2E),
    )  # fmt: skip


class _Kernel:
    """A loaded function with what its launches have in common."""

    types = (*[ctypes.c_void_p] * 4, ctypes.c_int64, *[ctypes.c_void_p] * 5, ctypes.c_float)

    def __init__(self, image: bytes, name: bytes, shared_bytes: int) -> None:
        self._module = _checked(driver.cuModuleLoadData(image))
        self._function = _checked(driver.cuModuleGetFunction(self._module, name))
        self._shared_bytes = shared_bytes
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(driver.cuFuncSetAttribute(self._function, most, shared_bytes))
        _prefer_shared(self._function)

    def launch(self, grid: tuple[int, int], arguments: tuple[Any, ...]) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        shape = (*grid, 1, THREADS, 1, 1, self._shared_bytes)
        packed = (arguments, self.types)
        _checked(driver.cuLaunchKernel(self._function, *shape, stream, packed, 0))


@cache
def let_run_beside(function: int) -> None:
    """Have a kernel of Triton's, by its handle, find room on a multiprocessor beside this one."""
    _prefer_shared(driver.CUfunction(function))


def _prefer_shared(function: Any) -> None:
    # Kernels that divide a multiprocessor's memory otherwise between cache and shared memory wait
    # for one another.
    prefer = driver.CUfunc_cache.CU_FUNC_CACHE_PREFER_SHARED
    _checked(driver.cuFuncSetCacheConfig(function, prefer))


@cache
def _kernel(
    device: int, heads: int, kv_heads: int, dim: int, page_size: int, half: bool
) -> _Kernel:
    defined = {"H": heads, "HK": kv_heads, "D": dim, "PAGE": page_size, "STAGES": STAGES} | (
        {"HALF": 1} if half else {}
    )
    row_bytes = dim * 2
    # Queries, K and V in stages, their barriers, and what aligns them.
    shared_bytes = ROWS * row_bytes + 2 * STAGES * SLOTS * row_bytes + 32 * STAGES + 1024
    return _Kernel(_compiled(defined), b"wide_tile", shared_bytes)


def _compiled(defined: dict[str, int]) -> bytes:
    header = _SOURCE.with_name("hopper.cuh")
    named = [header.read_bytes()], [header.name.encode()]
    source = _SOURCE.read_bytes(), _SOURCE.name.encode()
    program = _checked(nvrtc.nvrtcCreateProgram(*source, 1, *named))
    options = [b"--gpu-architecture=sm_90a", b"--std=c++17"]
    options += [f"-D{name}={value}".encode() for name, value in defined.items()]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(result):
        log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program))
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"{_SOURCE.name} does not compile: {log.decode()}")
    image: bytes = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))  # filled in place
    _checked(nvrtc.nvrtcGetCUBIN(program, image))
    return image


def _checked(answer: tuple[Any, ...]) -> Any:
    result, *values = answer
    if int(result):
        raise RuntimeError(f"CUDA answered {result!r}")
    return values[0] if values else None
