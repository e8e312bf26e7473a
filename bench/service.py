"""What the service costs, as ratios of things measured in one run: `python -m bench.service`.

batched   calls of 64 prompts of 2,000 tokens, against a raw asyncio server that reads the same
          bytes and answers as little; both get bytes that were made before. Beside it gRPC alone:
          grpc.aio handed the same bytes, with an answer made before
single    64 callers of one prompt each through a coalescing client, against plain unary calls
watchers  1,000 idle watchers, or one that does not read while the cache changes, against none

Servers and clients are processes of their own. Rounds alternate; medians are compared.
"""

import argparse
import asyncio
import multiprocessing
import socket
import statistics
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from rich.console import Console
from rich.table import Table

from bench.report import save
from radixkv import PrefixCache
from radixkv.rpc import serving
from radixkv.rpc.limits import CLIENT_OPTIONS, SERVER_OPTIONS
from radixkv.rpc.process import keep_freed_memory
from radixkv.rpc.rpcs import MATCH_PREFIX
from radixkv.service import AsyncClient, CacheServer
from radixkv.service.client import calls
from radixkv.tree.tokens import Int32Array
from radixkv.v1.prefix_cache_pb2 import PrefixMatch

PROCESSES = multiprocessing.get_context("spawn")
BATCH, LENGTH, IN_FLIGHT, CALLERS, WATCHERS = 64, 2000, 8, 64, 1000
# What must be reached, and how it is read.
CLAIMS = {
    "batched, of the raw server's tokens/s": (0.4, "at least"),
    "single, coalesced: times the calls/s": (4.0, "at least"),
    "single, coalesced: of the p50": (0.5, "at most"),
    "idle watchers: of the batched calls/s": (0.9, "at least"),
    "a slow watcher: of the batched calls/s": (0.9, "at least"),
}


def prompts(seed: int) -> Int32Array:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2**17, (BATCH, LENGTH), dtype=np.int32)


# ---- servers, each a process ----


def serve(ready: Any, changes: Any, end: Any) -> None:
    """Ours, as `radixkv serve` runs it; while `changes` is set, an engine stores and evicts."""
    keep_freed_memory()
    cache = PrefixCache(2 * BATCH * LENGTH)
    for prompt in prompts(0):
        request = cache.admit(prompt)
        assert request is not None
        cache.finish(request)
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
            cache.finish(request)
        time.sleep(0.005)


def serve_raw(ready: Any, changes: Any, end: Any) -> None:
    """Reads as many bytes as it is told, answers four for each prompt."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                (size,) = struct.unpack("<I", await reader.readexactly(4))
            except asyncio.IncompleteReadError:
                return
            await reader.readexactly(size)
            writer.write(bytes(4 * BATCH))

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


# ---- watchers, in a process of their own ----


def watch(address: str, count: int, reads: bool, ready: Any, end: Any) -> None:
    """Watchers that read, or that read nothing after the first word."""

    async def run() -> None:
        async with AsyncClient(address) as client:
            watches = [client.watch() for _ in range(count)]
            await asyncio.gather(*(anext(each) for each in watches))
            readers = [asyncio.create_task(_read(each)) for each in watches] if reads else []
            ready.set()
            await asyncio.to_thread(end.wait)
            for reader in readers:
                reader.cancel()

    asyncio.run(run())


async def _read(updates: Any) -> None:
    async for _ in updates:
        pass


@contextmanager
def watched(address: str, count: int, *, reads: bool) -> Iterator[None]:
    ready, end = PROCESSES.Event(), PROCESSES.Event()
    process = PROCESSES.Process(target=watch, args=(address, count, reads, ready, end))
    process.start()
    ready.wait()
    try:
        yield
    finally:
        end.set()
        process.join()


# ---- what is measured ----


async def rate(call: Callable[[int], Awaitable[Any]], callers: int, seconds: float) -> float:
    """Calls/s of so many callers, each of which calls again as soon as it is answered."""
    done, end = 0, time.perf_counter() + seconds

    async def work(number: int) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await call(number)
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(work(number) for number in range(callers)))
    return done / (time.perf_counter() - began)


async def batched(address: str, seconds: float) -> float:
    """Calls/s of batches, 8 in flight."""
    batch = calls.match(list(prompts(0)))
    data = batch.encode()
    async with grpc.aio.insecure_channel(address, CLIENT_OPTIONS) as channel:
        match = channel.unary_unary(MATCH_PREFIX.path, None, None)
        reply = batch.read(MATCH_PREFIX.response.FromString(await match(data)))
        assert set(reply.lengths) <= {0, LENGTH}
        return await rate(lambda _: match(data), IN_FLIGHT, seconds)


async def raw(address: str, seconds: float) -> float:
    """The same bytes to the raw server."""
    host, port = address.split(":")
    body = prompts(0).tobytes()
    ends = [await asyncio.open_connection(host, int(port)) for _ in range(IN_FLIGHT)]

    async def call(number: int) -> None:
        reader, writer = ends[number]
        writer.write(struct.pack("<I", len(body)))
        writer.write(body)
        await reader.readexactly(4 * BATCH)

    for _, writer in ends:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    found = await rate(call, IN_FLIGHT, seconds)
    for _, writer in ends:
        writer.close()
    return found


async def single(address: str, seconds: float, *, coalesce: bool) -> tuple[float, float]:
    """Calls/s of 64 callers of one prompt each, and their p50 in s."""
    batch, took = list(prompts(0)), list[float]()
    async with AsyncClient(address, timeout_s=60, coalesce=coalesce) as client:

        async def call(number: int) -> None:
            began = time.perf_counter()
            await client.match(batch[number])
            took.append(time.perf_counter() - began)

        await client.match(batch[0])
        return await rate(call, CALLERS, seconds), statistics.median(took)


def measure(rounds: int, seconds: float) -> dict[str, list[float]]:
    """Every sample by its name, taken in turn."""
    samples: dict[str, list[float]] = {}

    def add(name: str, value: float) -> None:
        samples.setdefault(name, []).append(value)

    with (
        running(serve) as (address, changes),
        running(serve_raw) as (raw_address, _),
        running(serve_grpc) as (grpc_address, _),
    ):
        for _ in range(rounds):
            add("batched", asyncio.run(batched(address, seconds)))
            add("raw", asyncio.run(raw(raw_address, seconds)))
            add("gRPC alone", asyncio.run(batched(grpc_address, seconds)))
            for coalesce, name in ((True, "coalesced"), (False, "plain")):
                found, p50 = asyncio.run(single(address, seconds, coalesce=coalesce))
                add(name, found)
                add(f"{name} p50", p50)
        for count, reads, name in ((WATCHERS, True, "idle"), (1, False, "slow")):
            if not reads:
                changes.set()
            for _ in range(rounds):
                add(f"without {name}", asyncio.run(batched(address, seconds)))
                with watched(address, count, reads=reads):
                    add(name, asyncio.run(batched(address, seconds)))
    return samples


def ratios(samples: dict[str, list[float]]) -> dict[str, float]:
    """What is claimed, from medians."""
    middle = {name: statistics.median(values) for name, values in samples.items()}
    found = (
        middle["batched"] / middle["raw"],
        middle["coalesced"] / middle["plain"],
        middle["coalesced p50"] / middle["plain p50"],
        middle["idle"] / middle["without idle"],
        middle["slow"] / middle["without slow"],
    )
    return dict(zip(CLAIMS, found, strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.service")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    samples = measure(options.rounds, options.seconds)
    found = ratios(samples)
    table = Table("claim", "must be", "is")
    for claim, value in found.items():
        bound, sense = CLAIMS[claim]
        table.add_row(claim, f"{sense} {bound:g}", f"{value:.2f}")
    console = Console()
    console.print(table)
    tokens = statistics.median(samples["batched"]) * BATCH * LENGTH / 1e6
    console.print(f"{tokens:.0f} M tokens/s in batches of {BATCH} prompts of {LENGTH:,}")
    alone = statistics.median(samples["gRPC alone"]) / statistics.median(samples["raw"])
    console.print(f"gRPC alone: {alone:.2f} of the raw server's")
    figures = {"ratios": found, "grpc alone": alone, "m_tokens_s": tokens, "samples": samples}
    save("service", figures, options.out)


if __name__ == "__main__":
    main()
