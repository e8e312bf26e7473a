"""Calls as methods: a function that builds a `ClientCall` becomes a method that sends it."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from radixkv.errors import InvalidArgumentError
from radixkv.service.client.calls import ClientCall

P = ParamSpec("P")
T = TypeVar("T")
First = TypeVar("First")


class Sender(Protocol):
    """Sends calls, and waits for their results."""

    def send(self, call: ClientCall[T]) -> T: ...


class AsyncSender(Protocol):
    """Sends calls; their results are awaited."""

    async def send(self, call: ClientCall[T]) -> T: ...


def built(build: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `build`; raises InvalidArgumentError for a value that no message can hold."""
    try:
        return build(*args, **kwargs)
    except InvalidArgumentError:
        raise
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"arguments must fit in a message; got {error}") from error


def blocking(build: Callable[P, ClientCall[T]]) -> Callable[Concatenate[Any, P], T]:
    """`build` as a method that sends the call and returns its result."""

    @functools.wraps(build)
    def method(sender: Sender, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return sender.send(built(build, *args, **kwargs))

    return _as_method(method, build)


def awaited(build: Callable[P, ClientCall[T]]) -> Callable[Concatenate[Any, P], Awaitable[T]]:
    """`build` as a coroutine method that sends the call and returns its result."""

    @functools.wraps(build)
    async def method(sender: AsyncSender, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await sender.send(built(build, *args, **kwargs))

    return _as_method(method, build)


def blocking_under(
    build: Callable[Concatenate[First, P], ClientCall[T]],
) -> Callable[Concatenate[Any, P], T]:
    """The same for calls of a lease, whose `checked_ref()` is the first argument."""

    @functools.wraps(build)
    def method(lease: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = lease.send(built(build, lease.checked_ref(), *args, **kwargs))
        return result

    return _as_method(method, build, skip=1)


def awaited_under(
    build: Callable[Concatenate[First, P], ClientCall[T]],
) -> Callable[Concatenate[Any, P], Awaitable[T]]:
    """`blocking_under`, awaited."""

    @functools.wraps(build)
    async def method(lease: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await lease.send(built(build, lease.checked_ref(), *args, **kwargs))
        return result

    return _as_method(method, build, skip=1)


Method = TypeVar("Method", bound=Callable[..., Any])


def _as_method(method: Method, build: Callable[..., Any], skip: int = 0) -> Method:
    """Shows `build`'s parameters and the type of its result to help() and to editors."""
    signature = inspect.signature(build)
    (result,) = signature.return_annotation.__args__
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[itself, *list(signature.parameters.values())[skip:]], return_annotation=result
    )
    return method
