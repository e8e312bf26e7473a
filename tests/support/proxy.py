"""A network that delays and cuts, and a caller that keeps account of what it was told over it."""

import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from radixkv.errors import DeadlineExceededError, ServiceUnavailableError
from radixkv.service import Lease, LeaseHoldings


class Proxy:
    """Between a client and a server: what the server says is delayed, or the connection cut."""

    def __init__(self, target: str) -> None:
        self.delay_s, self.cut = 0.0, False
        host, port = target.split(":")
        self._target = host, int(port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            threading.Thread(target=self._pump, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(1 << 16):
                time.sleep(self.delay_s)
                if self.cut:
                    break
                client.sendall(data)
        except OSError:
            pass
        for each in (client, server):
            each.close()

    def close(self) -> None:
        self._listening.close()


@dataclass
class Known:
    """What answers said that a lease holds. num_lost: calls that ended without an answer."""

    slots: list[int] = field(default_factory=list)
    pin_ids: list[int] = field(default_factory=list)
    num_lost: int = 0

    def holds_exactly(self, holdings: LeaseHoldings) -> bool:
        """Whether a lease holds this and nothing else."""
        return holdings.slots.tolist() == sorted(self.slots) and sorted(holdings.pin_ids) == sorted(
            self.pin_ids
        )


def take_at_random(
    proxy: Proxy,
    lease: Lease,
    prompt: list[int],
    *,
    num_calls: int,
    rng: random.Random,
    repeats: bool = False,
) -> Known:
    """Slots and pins, by calls of which some are late and some connections cut.

    repeats: whether the caller sends each call under an id of its own until it is answered.
    """
    known = Known()

    def allocate(**how: Any) -> None:
        known.slots += lease.allocate(2, timeout_s=0.05, **how).slots.tolist()

    def pin(**how: Any) -> None:
        known.pin_ids.append(lease.pin(prompt, timeout_s=0.05, **how).matches[0].pin_id)

    def disturb() -> None:
        proxy.delay_s = rng.choice([0, 0, 0, 0.03, 0.08])
        proxy.cut = rng.random() < 0.05

    def is_answered(call: Callable[..., None], **how: Any) -> bool:
        disturb()
        try:
            call(**how)
        except (DeadlineExceededError, ServiceUnavailableError):
            known.num_lost += 1
            return False
        return True

    for _ in range(num_calls):
        call = rng.choice([allocate, pin])
        if not repeats:
            is_answered(call)
            continue
        request_id = str(uuid.uuid4())
        while not is_answered(call, request_id=request_id):
            pass
    proxy.delay_s, proxy.cut = 0.0, False
    return known
