"""Calls as methods: a function that builds a `ClientCall` becomes a method that makes it."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from radixkv.errors import InvalidArgumentError
from radixkv.service.client.calls import ClientCall

P = ParamSpec("P")
T = TypeVar("T")
First = TypeVar("First")


class Maker(Protocol):
    """Makes calls, and waits for their answers."""

    def _make(self, call: ClientCall[T]) -> T: ...


class AsyncMaker(Protocol):
    """Makes calls; their answers are awaited."""

    async def _make(self, call: ClientCall[T]) -> T: ...


def built(build: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `build` gives; raises InvalidArgumentError for a value that no message can hold."""
    try:
        return build(*args, **kwargs)
    except InvalidArgumentError:
        raise
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{error}; no message can hold that") from error


def blocking(build: Callable[P, ClientCall[T]]) -> Callable[Concatenate[Any, P], T]:
    """`build` as a method that makes the call and returns its answer."""

    @functools.wraps(build)
    def method(maker: Maker, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return maker._make(built(build, *args, **kwargs))

    return _as_method(method, build)


def awaited(build: Callable[P, ClientCall[T]]) -> Callable[Concatenate[Any, P], Awaitable[T]]:
    """`build` as a coroutine method that makes the call and returns its answer."""

    @functools.wraps(build)
    async def method(maker: AsyncMaker, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await maker._make(built(build, *args, **kwargs))

    return _as_method(method, build)


def blocking_under(
    build: Callable[Concatenate[First, P], ClientCall[T]],
) -> Callable[Concatenate[Any, P], T]:
    """The same for what is built under a lease: its `_use()` comes first."""

    @functools.wraps(build)
    def method(lease: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer: T = lease._make(built(build, lease._use(), *args, **kwargs))
        return answer

    return _as_method(method, build, skip=1)


def awaited_under(
    build: Callable[Concatenate[First, P], ClientCall[T]],
) -> Callable[Concatenate[Any, P], Awaitable[T]]:
    """`blocking_under`, awaited."""

    @functools.wraps(build)
    async def method(lease: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer: T = await lease._make(built(build, lease._use(), *args, **kwargs))
        return answer

    return _as_method(method, build, skip=1)


Method = TypeVar("Method", bound=Callable[..., Any])


def _as_method(method: Method, build: Callable[..., Any], skip: int = 0) -> Method:
    """Shows `build`'s parameters and its answer's type to help() and to editors."""
    signature = inspect.signature(build)
    (answer,) = signature.return_annotation.__args__
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[itself, *list(signature.parameters.values())[skip:]], return_annotation=answer
    )
    return method
