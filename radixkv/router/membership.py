"""Which workers a router has: those of lists that change, and those that an admin adds and removes.

A list is a name of the DNS with all its addresses (of a headless service in Kubernetes, say), or a
file. Both are looked at again, every so often.
"""

import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from radixkv.errors import InvalidArgumentError, RadixKVError
from radixkv.router.feeding import WorkerClient
from radixkv.router.router import Router

logger = logging.getLogger(__name__)


class ClosableClient(WorkerClient, Protocol):
    """A client that the membership closes when its worker goes."""

    def close(self) -> None: ...


class WorkerList(Protocol):
    """Workers that come and go."""

    def read(self) -> Mapping[str, str]:
        """Their addresses by name. Raises OSError, RadixKVError where that cannot be told now."""
        ...


class DnsName:
    """All addresses of a host name, each a worker: "host:port"."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._host, _, port = target.rpartition(":")
        if not self._host or not port.isdecimal() or int(port) > 65_535:
            raise InvalidArgumentError(f"a DNS name must be HOST:PORT; got {target!r}")
        self._port = int(port)

    def read(self) -> Mapping[str, str]:
        found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        addresses = sorted({_address(str(each[4][0]), self._port) for each in found})
        return {address: address for address in addresses}


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class WorkersFile:
    """A file with a worker a line, NAME=ADDRESS or ADDRESS; # begins a comment."""

    def __init__(self, path: Path) -> None:
        self.target = str(path)
        self._path = path

    def read(self) -> Mapping[str, str]:
        try:
            text = self._path.read_text("utf-8")
        except ValueError as error:
            raise InvalidArgumentError(f"{self._path} must be UTF-8 text: {error}") from error
        lines = (line.partition("#")[0].strip() for line in text.splitlines())
        return parse_workers([line for line in lines if line], str(self._path))


def parse_workers(items: Sequence[str], where: str) -> dict[str, str]:
    """Addresses by name, of NAME=ADDRESS and ADDRESS. Raises InvalidArgumentError."""
    addresses: dict[str, str] = {}
    for item in items:
        name, is_named, address = item.partition("=")
        if not name or (is_named and not address):
            raise InvalidArgumentError(f"{where} must be NAME=ADDRESS or ADDRESS; got {item!r}")
        if name in addresses:
            raise InvalidArgumentError(
                f"{where} must name each server once; got {name!r} twice", worker=name
            )
        addresses[name] = address or name
    return addresses


class Membership:
    """Adds workers to `router` and removes them.

    connect: a client of the server at an address. lists: read at once, and again every `every_s`
    once it is started; one that cannot be read leaves its workers as they were.
    """

    def __init__(
        self,
        router: Router,
        connect: Callable[[str], ClosableClient],
        lists: Sequence[WorkerList] = (),
        every_s: float = 5.0,
    ) -> None:
        self._router, self._connect, self._every_s = router, connect, every_s
        self._lists = [*lists]
        self._listed: list[Mapping[str, str]] = [{} for _ in lists]
        self._clients: dict[str, ClosableClient] = {}
        self._removed: set[str] = set()  # by an admin, although a list has them
        self._problems: dict[int, str] = {}
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="radixkv-members", daemon=True)

    def add(self, worker: str, address: str) -> None:
        """Route to the server at `address` too. Raises InvalidArgumentError for a name in use."""
        with self._lock:
            client = self._connect(address)
            try:
                self._router.follow(worker, client, address=address)
            except BaseException:
                client.close()
                raise
            self._clients[worker] = client
            self._removed.discard(worker)

    def remove(self, worker: str) -> None:
        """Route to a server no longer. Raises InvalidArgumentError for an unknown name.

        Lists that have it bring it back only after they have lacked it.
        """
        with self._lock:
            self._drop(worker)
            if any(worker in listed for listed in self._listed):
                self._removed.add(worker)

    def _drop(self, worker: str) -> None:
        self._router.remove_worker(worker)
        client = self._clients.pop(worker, None)
        if client is not None:
            client.close()

    # ---- lists ----

    def start(self) -> None:
        """Read all lists, and again every so often, on a thread of its own. Call it once."""
        self.look()
        if self._lists:
            self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            self.look()

    def look(self) -> None:
        """Read all lists, add who is new and remove who is gone."""
        read = [self._read(at, each) for at, each in enumerate(self._lists)]
        with self._lock:
            before, self._listed = self._listed, read
            old = {name: where for listed in before for name, where in listed.items()}
            new = {name: where for listed in read for name, where in listed.items()}
            self._removed &= new.keys()
            for worker, address in old.items():
                if new.get(worker) != address and worker in self._clients:
                    logger.warning("worker %s is listed no longer", worker)
                    self._drop(worker)
            for worker in new.keys() - self._clients.keys() - self._removed:
                self._add_listed(worker, new[worker])

    def _add_listed(self, worker: str, address: str) -> None:
        try:
            self.add(worker, address)
        except RadixKVError as error:  # a bad address: the others are still added
            logger.warning("worker %s cannot be added: %s", worker, error)

    def _read(self, at: int, each: WorkerList) -> Mapping[str, str]:
        try:
            found = each.read()
        except (OSError, RadixKVError) as error:
            if self._problems.get(at) != str(error):
                logger.warning("workers of a list stay as they were: %s", error)
            self._problems[at] = str(error)
            return self._listed[at]
        self._problems.pop(at, None)
        return found

    def close(self) -> None:
        """End what reads the lists, and close all clients; the router's watches end first."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._router.close()
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
