"""Builds and launches `wide_tile.cu` and `narrow_tile.cu`: rows over runs of slots, on Hopper."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver, nvrtc
from torch import Tensor

from radixkv.kernels.gpu.attend import LOG2E, Work

DIMS = (64, 128)
DTYPES = (torch.bfloat16, torch.float16)
_FOLDER = Path(__file__).parent


def attend_wide(
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    table: Tensor,
    work: Work,
    partial_o: Tensor,
    partial_lse: Tensor,
    *,
    scale: float,
    page_size: int,
    rows: int,
) -> None:
    """As `attend`, for items whose queries all see the whole run, without softcap or v_scale.

    q, k_pool, v_pool: one of DTYPES, the last dimension one of DIMS. rows: of an item, 64 or 128.
    The next kernel may start beside this one.
    """
    inputs = q, k_pool, v_pool, table
    # A warpgroup fetches. What computes less waits more for memory.
    stages, slots, threads = 4 if rows == 64 else 3, 64, 128 + 2 * rows
    shape, barriers = _shape(q, k_pool, page_size, rows), 32 * stages
    kernel = _kernel("wide_tile", shape, stages, slots, threads, barriers)
    kernel.launch(inputs, work, partial_o, partial_lse, scale=scale, beside_last=False)


def attend_narrow(
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    table: Tensor,
    work: Work,
    partial_o: Tensor,
    partial_lse: Tensor,
    *,
    scale: float,
    page_size: int,
    rows: int,
    stages: int,
    beside_last: bool,
) -> None:
    """As `attend_wide`, for few rows, 8, 16, 32 or 64, whose queries need not see all of a run.

    stages: of 16 slots, in shared memory. beside_last: starts while the kernel launched before
    runs, once all of that runs, and ends after it. The next kernel may start beside this one.
    """
    shape = _shape(q, k_pool, page_size, rows)
    kernel = _kernel("narrow_tile", shape, stages, slots=16, threads=max(32, 2 * rows), extra=0)
    inputs = q, k_pool, v_pool, table
    kernel.launch(inputs, work, partial_o, partial_lse, scale=scale, beside_last=beside_last)


# Device, heads, KV heads, head size, page size, rows, whether fp16.
_Shape = tuple[int, int, int, int, int, int, bool]


def _shape(q: Tensor, k_pool: Tensor, page_size: int, rows: int) -> _Shape:
    is_half = q.dtype == torch.float16
    return q.device.index, q.shape[1], k_pool.shape[1], q.shape[2], page_size, rows, is_half


@cache
def _kernel(
    name: str, shape: _Shape, stages: int, slots: int, threads: int, extra: int
) -> "_Kernel":
    device, heads, kv_heads, dim, page_size, rows, is_half = shape
    defined = {"H": heads, "HK": kv_heads, "D": dim, "PAGE": page_size, "ROWS": rows}
    defined |= {"STAGES": stages} | ({"HALF": 1} if is_half else {})
    shared_bytes = 2 * stages * slots * dim * 2 + extra
    with torch.cuda.device(device):
        return _Kernel(name, defined, kv_heads, threads, shared_bytes)


class _Kernel:
    """A compiled function, loaded on the present device, with what its launches have in common."""

    types = (*[ctypes.c_void_p] * 4, ctypes.c_int64, *[ctypes.c_void_p] * 5, ctypes.c_float)

    def __init__(
        self, name: str, defined: dict[str, int], kv_heads: int, threads: int, shared_bytes: int
    ) -> None:
        self._module = _checked(driver.cuModuleLoadData(_compiled(name, defined)))
        self._function = _checked(driver.cuModuleGetFunction(self._module, name.encode()))
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(driver.cuFuncSetAttribute(self._function, most, shared_bytes))
        _prefer_shared(self._function)
        self._kv_heads, self._threads, self._shared_bytes = kv_heads, threads, shared_bytes

    def launch(
        self,
        inputs: tuple[Tensor, Tensor, Tensor, Tensor],
        work: Work,
        partial_o: Tensor,
        partial_lse: Tensor,
        *,
        scale: float,
        beside_last: bool,
    ) -> None:
        outputs = work.items, work.count, work.q_indices, partial_o, partial_lse
        arguments = (
            *(x.data_ptr() for x in inputs), inputs[3].stride(0),
            *(x.data_ptr() for x in outputs), scale * LOG2E,
        )  # fmt: skip
        device = inputs[0].device
        with torch.cuda.device(device):
            config = self._config(work.grid, torch.cuda.current_stream(device), beside_last)
            _checked(driver.cuLaunchKernelEx(config, self._function, (arguments, self.types), 0))

    def _config(self, items: int, stream: torch.cuda.Stream, beside_last: bool) -> Any:
        # Made anew each time: other threads launch the same function.
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = self._kv_heads, items, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = self._threads, 1, 1
        config.sharedMemBytes, config.hStream = self._shared_bytes, stream.cuda_stream
        config.attrs = [_beside()] if beside_last else []
        config.numAttrs = len(config.attrs)
        return config


def _beside() -> Any:
    attribute = driver.CUlaunchAttribute()
    names = driver.CUlaunchAttributeID
    attribute.id = names.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    return attribute


def _prefer_shared(function: Any) -> None:
    # Kernels that divide a multiprocessor's memory otherwise between cache and shared memory wait
    # for one another.
    prefer = driver.CUfunc_cache.CU_FUNC_CACHE_PREFER_SHARED
    _checked(driver.cuFuncSetCacheConfig(function, prefer))


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
