"""One call on the cache: whole, under its lock, and one revision of the event log.

    @transaction
    def admit(self, token_ids): ...

It is for the public verbs of `PrefixCache` and `Loans`. Their parts trust that they run inside one.
A verb does not call another verb: each would be a revision of its own.

A signal handler, `KVPool.copy` or a fence's `query` may call the cache in the middle of a call.
`@transaction` refuses that, `@ending` does it once the call is over, `@single_step` at once.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps
from gc import disable, enable, isenabled
from typing import NoReturn, ParamSpec, TypeVar
from weakref import WeakMethod, WeakSet

from radixkv.cache.events import EventLog
from radixkv.errors import CacheCorruptedError, RadixKVError, ReentrantCallError
from radixkv.tree import NO_CHANGES, Changes, RadixTree

_log = logging.getLogger(__name__)
# What is said where there is no memory to say more.
_UNKNOWN = ("memory ran out in the middle of a call",)

P = ParamSpec("P")
R = TypeVar("R")


class Transactions:
    """The lock of one cache, the log of what each call changed in its tree, and who may come
    between.

    check: lists what is broken; asked where a call was cut short outside the native core, whose own
    calls change nothing then.
    violations: what is broken; once there are any, every call is refused.
    is_closed: whether a call has to wait or is refused: one is under way, or the cache is broken.
    late: calls that came in the middle of another and are done after it.
    """

    def __init__(self, tree: RadixTree, events: EventLog, check: Callable[[], list[str]]) -> None:
        self.take_changes, self.events = tree.take_changes, events
        self._check = WeakMethod(check)
        self._is_native = tree.core == "native"
        self.lock = threading.RLock()
        self.violations: Sequence[str] = ()
        self.is_closed = False
        self.late: list[Callable[[], object]] = []
        tree.track_changes()
        _living.add(self)

    def release_if_locked(self) -> None:
        """An exception came from outside while the lock was taken: before or behind that."""
        with suppress(RuntimeError):  # before
            self.lock.release()

    # ---- a call in the middle of another ----

    def refuse_inside(self, call: Callable[[], R]) -> R:
        """What `@transaction` does with such a call."""
        if self.violations:
            self.raise_refusal()
        raise ReentrantCallError(
            "a call must come before or after another of its thread; got one in the middle (from a "
            "signal handler, kv.copy or a fence's query), where only finish, abort, retract, unpin "
            "and, on the native core, evict and look-ups may come"
        )

    def postpone(self, call: Callable[[], R]) -> R:
        """What `@ending` does with it."""
        if self.violations:
            self.raise_refusal()
        self.late.append(call)
        return None  # type: ignore[return-value]

    def run_inside(self, call: Callable[[], R]) -> R:
        """What `@single_step` does with it: one call of the native core is whole by itself."""
        if self.violations or not self._is_native:
            self.refuse_inside(call)
        self.late.append(lambda: None)  # so that what it changes is logged
        return call()

    def run_late(self) -> None:
        """Do what came in the middle of the call."""
        while self.late:
            call = self.late.pop(0)
            try:
                call()
            except Exception:
                _log.exception("a call that came in the middle of another failed after it")
            self.events.append(self.take_changes())

    # ---- a call that raises ----

    def settle(self, error: BaseException, changes: Changes) -> None:
        """A call raised `error`: log what it changed, and serve others where the cache is sound.

        changes: those that it took, to log them.
        """
        self.is_closed = True
        try:
            if changes and not self.events.is_last(changes):
                self.refuse("a call was cut short before a change was logged")
            self.events.append(self.take_changes())
            self.run_late()
            if not isinstance(error, RadixKVError) or isinstance(error, ReentrantCallError):
                self._judge(error)
        finally:
            self.is_closed = bool(self.violations)

    def refuse(self, *violations: str) -> None:
        """Serve no call any more: the cache is broken."""
        self.violations, self.is_closed = violations or _UNKNOWN, True

    def _judge(self, error: BaseException) -> None:
        """A call was cut short at any line: serve no other unless the cache is sound."""
        if self.violations:
            return
        self.refuse()
        try:
            check = self._check()
            lines = check() if check else []
            if lines:
                self.refuse(f"a call failed with {error!r}", *lines)
            else:
                self.violations = ()
        except MemoryError:
            self.refuse("memory ran out in the middle of a call, and to check the cache as well")
        except Exception as problem:
            self.refuse(f"a call failed with {error!r}, and a check of the cache with {problem!r}")

    def raise_refusal(self) -> NoReturn:
        """Say why a call is refused."""
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
    ReentrantCallError in the middle of another call.
    """
    return _whole(method, Transactions.refuse_inside)


def ending(method: Callable[P, R]) -> Callable[P, R]:
    """As `transaction`, for what returns nothing: in the middle of another call it waits for its
    end.
    """
    return _whole(method, Transactions.postpone)


def single_step(method: Callable[P, R]) -> Callable[P, R]:
    """As `transaction`, for what is one call of the native core: it may come at any line."""
    return _whole(method, Transactions.run_inside)


def _whole(
    method: Callable[P, R], inside: Callable[[Transactions, Callable[[], R]], R]
) -> Callable[P, R]:
    @wraps(method)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        # Each request pays for this three times: acquire() is a third of a `with`, and a parameter
        # `self` would copy the others.
        own: Transactions = args[0].transactions  # type: ignore[attr-defined]
        lock, is_locked, is_held, changes = own.lock, False, False, NO_CHANGES
        try:
            lock.acquire()
            is_locked = True
            # Finalizers may call the cache, and a call is not whole at every line.
            if isenabled():
                is_held = True
                disable()
            if own.is_closed:
                return inside(own, partial(method, *args, **kwargs))
            try:
                own.is_closed = True
                answer = method(*args, **kwargs) if kwargs else method(*args)  # type: ignore[call-arg]
                if changes := own.take_changes():
                    own.events.append(changes)
                if own.late:
                    own.run_late()
                own.is_closed = False
                return answer
            except BaseException as error:
                own.settle(error, changes)
                raise
        finally:
            try:
                if is_held:
                    enable()
            finally:
                if is_locked:
                    lock.release()
                else:
                    own.release_if_locked()

    return locked
