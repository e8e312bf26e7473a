"""One call on the cache: whole, under its lock, and one revision of the event log.

    @transaction
    def evict(self, num_tokens): ...

It is for the public verbs of `PrefixCache` and `Loans`. Their parts trust that they run inside one.
A verb does not call another verb: each would be a revision of its own.
"""

import gc
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import NoReturn, ParamSpec, TypeVar
from weakref import WeakMethod, WeakSet

from radixkv.cache.events import EventLog
from radixkv.errors import CacheCorruptedError, InvalidArgumentError, OutOfMemoryError
from radixkv.tree import RadixTree

# What is said where there is no memory to say more.
_UNKNOWN = ("memory ran out in the middle of a call",)

P = ParamSpec("P")
R = TypeVar("R")


class Transactions:
    """The lock of one cache, and the log of what each call changed in its tree.

    check: lists what is broken; asked where memory ran out outside the native core, whose own calls
    change nothing then.
    violations: what is broken; once there are any, every call is refused.
    is_refusing: whether calls are refused: because of these, or because `KVPool.copy` runs in the
    middle of a call, and must not begin another.
    """

    def __init__(self, tree: RadixTree, events: EventLog, check: Callable[[], list[str]]) -> None:
        self.take_changes, self.events = tree.take_changes, events
        self._check = WeakMethod(check)
        self.lock = threading.RLock()
        self.violations: Sequence[str] = ()
        self.is_refusing = False
        tree.track_changes()
        _living.add(self)

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Refuse calls meanwhile: the cache is half-way through one."""
        self.is_refusing = True
        try:
            yield
        finally:
            self.is_refusing = bool(self.violations)

    def refuse(self, *violations: str) -> None:
        """Serve no call any more: the cache is broken."""
        self.violations, self.is_refusing = violations or _UNKNOWN, True

    def judge(self, error: MemoryError) -> None:
        """Memory ran out in a call: serve no other unless the cache is sound."""
        if isinstance(error, OutOfMemoryError) or self.violations:
            return
        self.refuse()
        try:
            check = self._check()
            lines = check() if check else []
            if lines:
                self.refuse(f"a call failed with {error!r}", *lines)
            else:
                self.violations, self.is_refusing = (), False
        except MemoryError:
            self.refuse("memory ran out in the middle of a call, and to check the cache as well")

    def raise_refusal(self) -> NoReturn:
        """Say why a call is refused."""
        if not self.violations:
            raise InvalidArgumentError("kv.copy must not call the cache; got a call")
        raise CacheCorruptedError(
            f"a cache must be whole to serve a call; got a broken one: {self.violations[0]}",
            violations=list(self.violations),
        )


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

    Its object has `transactions`. Raises CacheCorruptedError where the cache is broken,
    InvalidArgumentError where `KVPool.copy` calls back.
    """

    @wraps(method)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        # Each request pays for this three times: acquire() is half a `with`, and a parameter `self`
        # would copy the others.
        own: Transactions = args[0].transactions  # type: ignore[attr-defined]
        lock = own.lock
        lock.acquire()
        # Finalizers may call the cache, and a call is not whole at every line.
        is_held = gc.isenabled()
        try:
            if is_held:
                gc.disable()
            if own.is_refusing:
                own.raise_refusal()
            try:
                return method(*args, **kwargs)
            finally:
                if changes := own.take_changes():
                    try:
                        own.events.append(changes)
                    except MemoryError:
                        own.refuse("memory ran out before a change was logged")
                        raise
        except MemoryError as error:
            own.judge(error)
            raise
        finally:
            if is_held:
                gc.enable()
            lock.release()

    return locked
