"""One call on the cache: whole, under its lock, and one revision of the event log.

    @transaction
    def evict(self, num_tokens): ...

It is for the public verbs of `PrefixCache` and `Loans`. Their parts trust that they run inside one.
A verb does not call another verb: each would be a revision of its own.
"""

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar
from weakref import WeakSet

from radixkv.cache.events import EventLog
from radixkv.errors import InvalidArgumentError
from radixkv.tree import RadixTree

P = ParamSpec("P")
R = TypeVar("R")


class Transactions:
    """The lock of one cache, and the log of what each call changed in its tree.

    is_copying: whether `KVPool.copy` runs in the middle of a call, and must not begin another.
    holds_collector: whether Python's collector waits until a call has ended, as finalizers may call
    the cache and a call of the Python core is not whole at every line.
    """

    def __init__(self, tree: RadixTree, events: EventLog) -> None:
        self.take_changes, self.events = tree.take_changes, events
        self.lock = threading.RLock()
        self.is_copying = False
        self.holds_collector = tree.core == "python"
        tree.track_changes()
        _living.add(self)

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Refuse calls meanwhile: the cache is half-way through one."""
        self.is_copying = True
        try:
            yield
        finally:
            self.is_copying = False


_living: "WeakSet[Transactions]" = WeakSet()
_held: list[Transactions] = []


def _hold_all() -> None:
    """A process forks: no cache may be in the middle of a call, nor locked in the child."""
    for each in list(_living):
        each.lock.acquire()
        each.events.hold()
        _held.append(each)


def _release_all() -> None:
    while _held:
        each = _held.pop()
        each.events.release()
        each.lock.release()


os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_release_all)


def transaction(method: Callable[P, R]) -> Callable[P, R]:
    """Run a method under the lock and log what it changed in the tree, even where it raises.

    Its object has `transactions`. Raises InvalidArgumentError where `KVPool.copy` calls back.
    """

    @wraps(method)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        # Each request pays for this three times: acquire() is half a `with`, and a parameter `self`
        # would copy the others.
        own: Transactions = args[0].transactions  # type: ignore[attr-defined]
        lock = own.lock
        lock.acquire()
        is_held = own.holds_collector and gc.isenabled()
        try:
            if is_held:
                gc.disable()
            if own.is_copying:
                raise InvalidArgumentError("kv.copy must not call the cache; got a call")
            try:
                return method(*args, **kwargs)
            finally:
                if changes := own.take_changes():
                    own.events.append(changes)
        finally:
            if is_held:
                gc.enable()
            lock.release()

    return locked
