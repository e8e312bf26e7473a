"""Concurrent matches of single prompts in one call: a call costs the server the same for 1 or 64.

No match is delayed to fill a batch: a match is sent at once where no other is under way. Matches
that come while one is under way go together when it is back.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Generic, TypeVar

from radixkv.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    RadixKVError,
    ServiceError,
)
from radixkv.rpc.limits import DATA_DEADLINE_S, MAX_BATCH_SEQUENCES
from radixkv.service.client.calls import ClientCall, MatchReply, Result
from radixkv.v1.prefix_cache_pb2 import MatchPrefixRequest

_MOST_BYTES = 4 << 20
# For a call whose time is over: gRPC takes no less.
_LEAST_S = 0.001
_INTERRUPTED = "the call was interrupted"
_Outcome = MatchReply | RadixKVError


def can_join(call: ClientCall[Any]) -> bool:
    """Whether it is the match of one prompt, under no lease."""
    request = call.request
    return (
        isinstance(request, MatchPrefixRequest) and len(call.prompts) == 1 and not request.lease_id
    )


def waiting(call: ClientCall[Result], timeout_s: float | None) -> ClientCall[Result]:
    """The call with a copy of its tokens, since the caller may change its array meanwhile."""
    own = [(head, bytes(tokens)) for head, tokens in call.prompts]
    return replace(call, timeout_s=timeout_s, prompts=own)


def _kind(call: ClientCall[MatchReply]) -> Hashable:
    """What must be equal for two matches to go together."""
    return call.request.SerializeToString()


def _join(calls: Sequence[ClientCall[MatchReply]]) -> ClientCall[MatchReply]:
    """One call for all of them."""
    prompts = [prompt for call in calls for prompt in call.prompts]
    timeouts = [call.timeout_s for call in calls]
    longest = None if None in timeouts else max(filter(None, timeouts))
    return replace(calls[0], timeout_s=longest, prompts=prompts)


def _split(reply: MatchReply) -> list[MatchReply]:
    return [MatchReply((match,), reply.epoch, reply.revision) for match in reply.matches]


class _Waiting:
    """One caller. is_gone: it gave up. batch: the callers for which it makes the call, with itself.

    ends_at: its deadline. outcome: set once `woken` is set and there is no batch.
    """

    def __init__(self, call: ClientCall[MatchReply]) -> None:
        self.call = call
        self.timeout_s = call.timeout_s or DATA_DEADLINE_S
        self.ends_at = time.monotonic() + self.timeout_s
        self.is_gone = False
        self.woken = threading.Event()
        self.batch: list[_Waiting] = []
        self.outcome: _Outcome | None = None


class _Awaiting:
    """One caller of an event loop."""

    def __init__(self, call: ClientCall[MatchReply]) -> None:
        self.call = call
        self.future: asyncio.Future[MatchReply] = asyncio.get_running_loop().create_future()

    @property
    def is_gone(self) -> bool:
        return self.future.done()

    def end(self, outcome: _Outcome) -> None:
        if self.is_gone:
            return
        if isinstance(outcome, RadixKVError):
            self.future.set_exception(copy(outcome))
        else:
            self.future.set_result(outcome)


Caller = TypeVar("Caller", _Waiting, _Awaiting)


class _Queue(Generic[Caller]):
    """Callers that wait for their turn, by kind of request."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[Caller]] = {}

    def add(self, caller: Caller) -> bool:
        """Whether it must wait for another of its kind; if not, it is under way from now on."""
        kind = _kind(caller.call)
        if kind in self._waiting:
            self._waiting[kind].append(caller)
            return True
        self._waiting[kind] = deque()
        return False

    def put_back(self, kind: Hashable, callers: Sequence[Caller]) -> None:
        """Callers of a batch that was not made are first again."""
        self._waiting[kind].extendleft(reversed(callers))

    def next_batch(self, kind: Hashable) -> list[Caller]:
        """The callers of the next batch; if it is empty, the kind is no longer under way."""
        queue, batch, size = self._waiting[kind], list[Caller](), 0
        while queue and len(batch) < MAX_BATCH_SEQUENCES:
            caller = queue.popleft()
            if caller.is_gone:
                continue
            size += len(caller.call.prompts[0][1])
            if batch and size > _MOST_BYTES:
                queue.appendleft(caller)
                break
            batch.append(caller)
        if not batch:
            del self._waiting[kind]
        return batch


class Coalescer:
    """For a blocking client. make: makes a call and returns its result. Thread-safe."""

    def __init__(self, make: Callable[[ClientCall[Any]], Any]) -> None:
        self._make = make
        self._queue: _Queue[_Waiting] = _Queue()
        self._lock = threading.RLock()  # a finalizer may also make calls

    def match(self, call: ClientCall[MatchReply]) -> MatchReply:
        """The call's result, or its error raised."""
        me = _Waiting(call)
        with self._lock:
            must_wait = self._queue.add(me)
        if must_wait:
            self._wait(me)
        else:
            me.batch = [me]
        if me.batch:
            self._lead(me)
        assert me.outcome is not None
        if isinstance(me.outcome, RadixKVError):
            raise copy(me.outcome)
        return me.outcome

    def _wait(self, me: _Waiting) -> None:
        try:
            if me.woken.wait(me.timeout_s):
                return
        except BaseException:  # of a signal: no other caller may wait for one that is gone
            if not self._leave(me) and me.batch:
                self._hand_back(me)
            raise
        if self._leave(me):
            raise DeadlineExceededError(f"no response within {me.timeout_s:g} s")

    def _leave(self, me: _Waiting) -> bool:
        """Whether it leaves before it was woken."""
        with self._lock:
            me.is_gone = not me.woken.is_set()
        return me.is_gone

    def _hand_back(self, me: _Waiting) -> None:
        kind = _kind(me.call)
        with self._lock:
            me.is_gone = True
            self._queue.put_back(kind, me.batch)
        self._wake_next(kind)

    def _lead(self, me: _Waiting) -> None:
        """Make the call for all of a batch, and hand over to the leader of the next."""
        batch = me.batch
        outcomes: list[_Outcome] = [ServiceError(_INTERRUPTED)] * len(batch)
        try:
            outcomes = self._make_all([waiting.call for waiting in batch], me.ends_at)
        finally:
            self._wake_next(_kind(me.call))
            for waiting, outcome in zip(batch, outcomes, strict=True):
                waiting.outcome = outcome
                waiting.batch = []
                waiting.woken.set()

    def _wake_next(self, kind: Hashable) -> None:
        """Let the caller with the latest deadline make the next batch."""
        with self._lock:
            batch = self._queue.next_batch(kind)
            if batch:
                leader = max(batch, key=lambda waiting: waiting.ends_at)
                leader.batch = batch
                leader.woken.set()

    def _make_all(self, calls: list[ClientCall[MatchReply]], ends_at: float) -> list[_Outcome]:
        call = replace(_join(calls), timeout_s=max(ends_at - time.monotonic(), _LEAST_S))
        try:
            return list(_split(self._make(call)))
        except RadixKVError as error:
            if not _is_of_one(error, calls):
                return [error] * len(calls)
        return [outcome for call in calls for outcome in self._make_all([call], ends_at)]


class AsyncCoalescer:
    """For an async client. make: makes a call; its result is awaited."""

    def __init__(self, make: Callable[[ClientCall[Any]], Awaitable[Any]]) -> None:
        self._make = make
        self._queue: _Queue[_Awaiting] = _Queue()
        self._leading: set[asyncio.Task[None]] = set()

    async def match(self, call: ClientCall[MatchReply]) -> MatchReply:
        """The call's result, or its error raised."""
        me = _Awaiting(call)
        if not self._queue.add(me):
            leading = asyncio.create_task(self._lead([me]))
            self._leading.add(leading)
            leading.add_done_callback(self._leading.discard)
        timeout_s = call.timeout_s or DATA_DEADLINE_S
        try:
            async with asyncio.timeout(timeout_s):
                return await me.future
        except TimeoutError:
            raise DeadlineExceededError(f"no response within {timeout_s:g} s") from None

    async def _lead(self, batch: list[_Awaiting]) -> None:
        kind = _kind(batch[0].call)
        try:
            while batch:
                outcomes = await self._make_all([caller.call for caller in batch])
                for caller, outcome in zip(batch, outcomes, strict=True):
                    caller.end(outcome)
                batch = self._queue.next_batch(kind)
        finally:  # the client was closed, or has a bug
            while batch:
                for caller in batch:
                    caller.end(ServiceError(_INTERRUPTED))
                batch = self._queue.next_batch(kind)

    async def _make_all(self, calls: list[ClientCall[MatchReply]]) -> list[_Outcome]:
        try:
            return list(_split(await self._make(_join(calls))))
        except RadixKVError as error:
            if not _is_of_one(error, calls):
                return [error] * len(calls)
        return [outcome for call in calls for outcome in await self._make_all([call])]


def _is_of_one(error: RadixKVError, calls: Sequence[ClientCall[MatchReply]]) -> bool:
    """Whether one of several prompts is to blame, so that each must be sent alone."""
    return isinstance(error, InvalidArgumentError) and len(calls) > 1
