"""A client that does an engine's work at random, with K/V that shows whose it is.

The "K/V" lies in shared memory: slot by slot a hash of the prompt up to there, which the client
that computes a token writes, and one that matches it reads. So every slot that two hold at once,
and every slot matched after its contents are gone, is found out.
"""

import random
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from radixkv import Namespace
from radixkv.errors import (
    DeadlineExceededError,
    EpochMismatchError,
    LeaseNotFoundError,
    LiveRequestsError,
    OutOfSlotsError,
    PinNotFoundError,
    ServiceUnavailableError,
)
from radixkv.service import Client, InsertCall, Lease

NUM_SLOTS = 200  # of each server: too few for all that its clients want at once
TTL_S = 2.0
SALTS = (None, "a", "b")
STEPS = ("match", "admit", "publish", "finish", "abort", "evict", "clear", "lost", "full")
_WEIGHTS = (3, 6, 4, 4, 2, 1, 0.03)
# What may come of others' doings: servers that are killed, caches that are cleared.
EXPECTED = (
    ServiceUnavailableError,
    DeadlineExceededError,
    EpochMismatchError,
    LeaseNotFoundError,
    PinNotFoundError,
    OutOfSlotsError,
    LiveRequestsError,
)


@dataclass
class Running:
    """A request: `pinned` tokens are the cache's, the rest its own."""

    tokens: list[int]
    namespace: Namespace
    pin_id: int
    pinned: int
    own: np.ndarray


class Engine:
    """A client with requests under way."""

    def __init__(
        self, address: str, memory: SharedMemory, lives: Any, server: int, rng: random.Random
    ) -> None:
        self.client = Client(address, timeout_s=20.0)
        self.lives, self.server, self.rng = lives, server, rng
        assert memory.buf is not None
        self.memory = np.frombuffer(memory.buf, np.uint32)
        self.kv = self.memory
        self.lease: Lease | None = None
        self.requests: list[Running] = []

    def step(self) -> str:
        """Do something; its name. What others' doings made impossible is "lost" or "full"."""
        kind = self.rng.choices(STEPS[:7], _WEIGHTS)[0]
        try:
            getattr(self, kind)()
        except OutOfSlotsError:
            self.abort()
            return "full"
        except EXPECTED:
            self._forget()
            return "lost"
        return kind

    def _forget(self) -> None:
        """Whatever the lease held is void, or will be when it ends."""
        if self.lease is not None:
            self.lease._closed.set()  # renewed no more
        self.lease, self.requests = None, []
        time.sleep(0.02)

    def _held(self) -> Lease:
        """The lease; a server that was killed took the pool with it, and another one is named."""
        if self.lease is None:
            life = self.lives[self.server]
            self.lease = self.client.lease(TTL_S, pool_id=f"{self.server}, life {life}")
            size = NUM_SLOTS + 1
            self.kv = self.memory[life * size : (life + 1) * size]
        return self.lease

    # ---- steps ----

    def match(self) -> None:
        tokens, namespace = self._prompt()
        if self.rng.random() < 0.5:
            self.client.match([tokens, tokens[:3]], namespace, probe=True)
        else:
            self.client.match(tokens, namespace)

    def admit(self) -> None:
        if len(self.requests) >= 3:
            self.finish()
            return
        lease, (tokens, namespace) = self._held(), self._prompt()
        (found,) = lease.pin(tokens, namespace).matches
        try:
            own = lease.allocate(len(tokens) - found.length).slots
        except OutOfSlotsError:
            lease.release([found.pin_id])
            raise
        request = Running(tokens, namespace, found.pin_id, found.length, own)
        self._check_read(found.slots, tokens[: found.length], namespace)
        self.requests.append(request)

    def publish(self) -> None:
        """The first half of what is its own is computed."""
        if self.requests:
            request = self.requests[0]
            self._insert(request, (len(request.own) + 1) // 2, keep=True)

    def finish(self) -> None:
        if self.requests:
            request = self.requests.pop()
            self._insert(request, len(request.own), keep=False)

    def abort(self) -> None:
        if self.requests and self.lease is not None:
            request = self.requests.pop()
            with suppress(*EXPECTED):
                self.lease.release([request.pin_id])
                self.lease.free(request.own)

    def evict(self) -> None:
        self.client.evict(self.rng.randint(1, 100))

    def clear(self) -> None:
        self.client.clear(force=self.rng.random() < 0.5)

    def _insert(self, request: Running, count: int, *, keep: bool) -> None:
        lease = self._held()
        end = request.pinned + count
        lease.check()
        self.kv[request.own[:count]] = _hashes(request.tokens[:end], request.namespace)[
            request.pinned :
        ]
        computed = request.tokens[request.pinned : end]
        insert = InsertCall(computed, request.own[:count], request.pin_id, keep)
        (done,) = lease.insert(insert, request.namespace)
        duplicates = max(0, done.existing_length - request.pinned)
        self._check_read(
            done.replacements,
            request.tokens[request.pinned : done.existing_length],
            request.namespace,
            request.tokens[: request.pinned],
        )
        given_back = [request.own[:duplicates]]
        request.own, request.pinned = request.own[count:], end
        if not keep:
            given_back.append(request.own)
        lease.free(np.concatenate(given_back))

    def _check_read(
        self, slots: Any, tokens: list[int], namespace: Namespace, before: list[int] | None = None
    ) -> None:
        """The slots that the cache names hold what was computed for these tokens."""
        before = before or []
        found = self.kv[slots].tolist()
        right = _hashes(before + tokens, namespace)[len(before) :].tolist()
        if found != right:
            self._held().check()
            self.client.lease_info(self._held().id)  # raises if it ended meanwhile
            raise AssertionError(f"slots {slots.tolist()} hold {found}, not {right}")

    def _prompt(self) -> tuple[list[int], Namespace]:
        length = self.rng.randint(1, 40)
        stem = self.rng.randrange(4)
        tokens = [stem, *(self.rng.randrange(2) for _ in range(length - 1))]
        return tokens, Namespace(salt=self.rng.choice(SALTS))


def _hashes(tokens: list[int], namespace: Namespace) -> np.ndarray:
    """What the K/V of each token is made of: the namespace and all tokens up to it."""
    start = zlib.crc32(repr(namespace.salt).encode())
    steps = accumulate(tokens, lambda h, t: zlib.crc32(t.to_bytes(4, "little"), h), initial=start)
    return np.array(list(steps)[1:], np.uint32)
