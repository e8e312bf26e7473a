"""One call on the cache: whole, under its lock, and one revision of the event log.

    @transaction
    def admit(self, token_ids): ...

It is for the public verbs of `PrefixCache` and `Loans`. Their parts trust that they run inside one.
A verb does not call another verb: each would be a revision of its own.

A signal handler, `KVPool.copy` or a fence's `query` may call the cache in the middle of a call.
`@transaction` refuses that, `@ending` does it once the call is over. What a call raises by itself
changed nothing; after an exception from outside the cache is in doubt until it has checked itself.
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
from radixkv.errors import CacheCorruptedError, OutOfMemoryError, RadixKVError, ReentrantCallError
from radixkv.tree import NO_CHANGES, Changes, RadixTree

_log = logging.getLogger(__name__)
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_LIBRARY = os.path.dirname(os.__file__) + os.sep

P = ParamSpec("P")
R = TypeVar("R")


class Transactions:
    """The lock of one cache, the log of what each call changed in its tree, and who may come
    between.

    check: lists what is broken; asked where a call was cut short outside the native core, whose own
    calls change nothing then.
    violations: what is broken; once there are any, every call is refused.
    is_closed: what a call looks at first: one is under way, or the cache is broken or in doubt.
    is_broken: whether it is closed after the call as well.
    doubt: what cut a call short, and the changes that it may not have logged.
    late: calls that came in the middle of another and are done after it.
    """

    def __init__(self, tree: RadixTree, events: EventLog, check: Callable[[], list[str]]) -> None:
        self.take_changes, self.events = tree.take_changes, events
        self._check = WeakMethod(check)
        self.lock = threading.RLock()
        self.violations: Sequence[str] = ()
        self.is_closed = self.is_broken = self._is_judging = False
        self.doubt: tuple[BaseException, Changes] | None = None
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
            "signal handler, kv.copy or a fence's query), where only finish, abort, retract, evict "
            "and unpin may come, which are done after it"
        )

    def postpone(self, call: Callable[[], R]) -> R:
        """What `@ending` does with it."""
        if self.violations:
            self.raise_refusal()
        self.late.append(call)
        return None  # type: ignore[return-value]

    def run_late(self) -> None:
        """Do what came in the middle of the call."""
        while self.late:
            try:
                self._run_first_late()
                del self.late[0]  # only now: done twice, an ending does no harm
                self.events.append(self.take_changes())
            except BaseException as error:
                self.doubt, self.is_broken = (error, NO_CHANGES), True
                raise

    def _run_first_late(self) -> None:
        try:
            self.late[0]()
        except RadixKVError as error:
            if not _is_ours(error):
                raise
            _log.exception("a call that came in the middle of another failed after it")

    # ---- a call that raises ----

    def reopens(self) -> bool:
        """Whether a closed cache opens: it was in doubt, and is sound."""
        if self.doubt is None or self._is_judging:
            return False
        try:
            self.settle()
        finally:
            self.is_closed = self.is_broken
        return not self.is_closed

    def settle(self) -> None:
        """Log what the call changed that left a doubt, and serve others where the cache is sound.

        Where an exception cuts this short as well, the next call begins with it.
        """
        if self.doubt is None:
            return
        error, changes = self.doubt
        self._is_judging = True
        try:
            if changes and not self.events.is_last(changes):
                self.refuse("a call was cut short before a change was logged")
            elif rest := self.take_changes():
                self.doubt = error, rest
                self.events.append(rest)
            if not isinstance(error, OutOfMemoryError) and not _is_ours(error):
                self._judge(error)
            self.doubt, self.is_broken = None, self.violations != ()
        finally:
            self._is_judging = False
        if not self.is_broken:
            self.run_late()

    def refuse(self, *violations: str) -> None:
        """Serve no call any more: the cache is broken."""
        self.violations, self.is_broken = violations, True

    def _judge(self, error: BaseException) -> None:
        """A call was cut short at any line: list what is broken."""
        check = self._check()
        if self.violations or check is None:
            return
        try:
            if lines := check():
                self.refuse(f"a call failed with {error!r}", *lines)
        except MemoryError:
            self.refuse("memory ran out in the middle of a call, and to check the cache as well")
        except Exception as problem:
            if not isinstance(problem, RadixKVError | LookupError):
                raise
            self.refuse(f"a call failed with {error!r}, and a check of the cache with {problem!r}")

    def raise_refusal(self) -> NoReturn:
        """Say why a call is refused."""
        raise CacheCorruptedError(
            f"a cache must be whole to serve a call; got a broken one: {self.violations[0]}",
            violations=list(self.violations),
        )


def _is_ours(error: BaseException) -> bool:
    """Whether the call raised it, with none of a caller's code in between: no handler, no copy."""
    at = error.__traceback__ if isinstance(error, RadixKVError) else None
    if at is None:
        return False
    while at is not None:
        if not _is_known(at.tb_frame.f_code.co_filename):
            return False
        at = at.tb_next
    return True


def _is_known(file: str) -> bool:
    """Whether its code is of this package, of Python's library, or written by that ("<string>")."""
    is_library = file.startswith(_LIBRARY) and "site-packages" not in file
    return file.startswith(_PACKAGE) or is_library or file == "<string>"


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
            if own.is_closed and not own.reopens():
                return inside(own, partial(method, *args, **kwargs))
            try:
                own.is_closed = True
                answer = method(*args, **kwargs) if kwargs else method(*args)  # type: ignore[call-arg]
                if changes := own.take_changes():
                    own.events.append(changes)
                    changes = NO_CHANGES
                if own.late:
                    own.run_late()
                return answer
            except BaseException as error:
                own.doubt, own.is_broken = (error, changes), True
                own.settle()
                raise
            finally:  # no call in here or before the doubt, so that nothing comes between
                own.is_closed = own.is_broken
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
