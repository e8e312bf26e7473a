"""What the service costs, as ratios of things measured in one run: `python -m bench.service`.

batched   calls of 64 prompts of 2,000 tokens, against raw asyncio servers that read the same bytes
          and answer as little: a batch at once, or prompt by prompt. Beside them gRPC alone:
          grpc.aio handed the same bytes, with an answer made before. All get bytes made before
single    64 callers of one prompt each through a coalescing client, against plain unary calls
watchers  1,000 idle watchers, or one that does not read while the cache changes, against none

Servers and clients are processes of their own. Rounds alternate; medians are compared.
"""

import argparse
import asyncio
import socket
import statistics
import struct
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from rich.console import Console
from rich.table import Table

from bench.report import Claim, Sense, judge, kept_at, save
from bench.service_servers import (
    BATCH,
    LENGTH,
    PROCESSES,
    prompts,
    running,
    serve,
    serve_grpc,
    serve_raw,
    serve_raw_prompts,
)
from radixkv.rpc.channel_options import CLIENT_OPTIONS
from radixkv.rpc.method_table import MATCH_PREFIX
from radixkv.service import AsyncClient
from radixkv.service.client import calls

IN_FLIGHT, CALLERS, WATCHERS = 8, 64, 1000
# What must be reached, and how it is read.
CLAIMS: dict[str, tuple[float, Sense]] = {
    "batched, of a raw server's tokens/s, batch at once": (0.4, "at least"),
    "batched, of a raw server's tokens/s, by prompt": (0.4, "at least"),
    "single, coalesced: times the calls/s": (4.0, "at least"),
    "single, coalesced: of the p50": (0.5, "at most"),
    "idle watchers: of the batched calls/s": (0.9, "at least"),
    "a slow watcher: of the batched calls/s": (0.9, "at least"),
}


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


async def raw(address: str, seconds: float, parts: int) -> float:
    """Calls/s of the same bytes to a raw server, in so many messages a call."""
    host, port = address.split(":")
    bodies = [part.tobytes() for part in np.split(prompts(0), parts)]
    message = b"".join(struct.pack("<I", len(body)) + body for body in bodies)
    ends = [await asyncio.open_connection(host, int(port)) for _ in range(IN_FLIGHT)]

    async def call(number: int) -> None:
        reader, writer = ends[number]
        writer.write(message)
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
        running(serve_raw_prompts) as (prompts_address, _),
        running(serve_grpc) as (grpc_address, _),
    ):
        for _ in range(rounds):
            add("batched", asyncio.run(batched(address, seconds)))
            add("raw", asyncio.run(raw(raw_address, seconds, 1)))
            add("raw by prompt", asyncio.run(raw(prompts_address, seconds, BATCH)))
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
        middle["batched"] / middle["raw by prompt"],
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
    claims = [Claim(name, found[name], sense, bound) for name, (bound, sense) in CLAIMS.items()]
    for name, reached, sense, bound in claims:
        table.add_row(name, f"{sense} {bound:g}", f"{reached:.2f}")
    console = Console()
    console.print(table)
    tokens = statistics.median(samples["batched"]) * BATCH * LENGTH / 1e6
    console.print(f"{tokens:.0f} M tokens/s in batches of {BATCH} prompts of {LENGTH:,}")
    alone = statistics.median(samples["gRPC alone"]) / statistics.median(samples["raw"])
    console.print(f"gRPC alone: {alone:.2f} of the raw server's, batch at once")
    figures = {"ratios": found, "grpc alone": alone, "m_tokens_s": tokens, "samples": samples}
    save("service", figures, kept_at("service", parser, options, "rounds", "seconds"))
    judge(claims)


if __name__ == "__main__":
    main()
