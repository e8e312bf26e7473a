"""What `bench.service` asks, each a process of its own: ours, and servers that do next to nothing.

All of them keep the memory that they free, as `radixkv serve` does.
"""

import asyncio
import multiprocessing
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np

from radixkv import PrefixCache
from radixkv.arrays import Int32Array
from radixkv.rpc import serving
from radixkv.rpc.channel_options import SERVER_OPTIONS
from radixkv.rpc.method_table import MATCH_PREFIX
from radixkv.rpc.process import keep_freed_memory
from radixkv.service import CacheServer
from radixkv.v1.prefix_cache_pb2 import PrefixMatch

PROCESSES = multiprocessing.get_context("spawn")
BATCH, LENGTH = 64, 2000


def prompts(seed: int) -> Int32Array:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2**17, (BATCH, LENGTH), dtype=np.int32)


def serve(ready: Any, changes: Any, end: Any) -> None:
    """Ours, as `radixkv serve` runs it; while `changes` is set, an engine stores and evicts."""
    keep_freed_memory()
    cache = PrefixCache(2 * BATCH * LENGTH)
    for prompt in prompts(0):
        request = cache.admit(prompt)
        assert request is not None
        cache.finish(request, up_to=request.length)
    threading.Thread(target=_change, args=(cache, changes), daemon=True).start()
    with CacheServer(cache, "127.0.0.1:0") as server:
        ready.put(server.address)
        end.wait()


def _change(cache: PrefixCache, changes: Any) -> None:
    rng = np.random.default_rng(1)
    while True:
        changes.wait()
        request = cache.admit(rng.integers(2**17, 2**18, 500, dtype=np.int32))
        if request is not None:
            cache.finish(request, up_to=request.length)
        time.sleep(0.005)


def serve_raw(ready: Any, changes: Any, end: Any) -> None:
    """Reads as many bytes as the length says, a whole batch, and answers four for each prompt."""
    _serve_raw(bytes(4 * BATCH), ready, end)


def serve_raw_prompts(ready: Any, changes: Any, end: Any) -> None:
    """Reads as many bytes as the length says, one prompt, and answers four."""
    _serve_raw(bytes(4), ready, end)


def _serve_raw(reply: bytes, ready: Any, end: Any) -> None:
    keep_freed_memory()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                (size,) = struct.unpack("<I", await reader.readexactly(4))
            except asyncio.IncompleteReadError:
                return
            await reader.readexactly(size)
            writer.write(reply)

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        ready.put(f"{host}:{port}")
        await asyncio.to_thread(end.wait)

    asyncio.run(run())


def serve_grpc(ready: Any, changes: Any, end: Any) -> None:
    """grpc.aio with nothing behind it."""
    keep_freed_memory()
    answer = MATCH_PREFIX.response(matches=BATCH * [PrefixMatch(matched_length=LENGTH)])
    data = answer.SerializeToString()

    async def match(_: bytes, __: Any) -> bytes:
        return data

    async def run() -> None:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        handler = grpc.unary_unary_rpc_method_handler(match)
        serving.add_handlers(server, MATCH_PREFIX.service, {MATCH_PREFIX.name: handler})
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        ready.put(f"127.0.0.1:{port}")
        await asyncio.to_thread(end.wait)
        await server.stop(0)

    asyncio.run(run())


@contextmanager
def running(target: Callable[..., None]) -> Iterator[tuple[str, Any]]:
    """The address of a server, and what makes its cache change."""
    ready, changes, end = PROCESSES.SimpleQueue(), PROCESSES.Event(), PROCESSES.Event()
    process = PROCESSES.Process(target=target, args=(ready, changes, end))
    process.start()
    try:
        yield ready.get(), changes
    finally:
        changes.clear()
        end.set()
        process.join()
