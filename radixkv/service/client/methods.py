"""Calls as methods: a function that builds a `ClientCall` becomes a method that sends it."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from radixkv.arguments import as_flag, as_number, as_text, between
from radixkv.errors import InvalidArgumentError
from radixkv.service.client.calls import ClientCall
from radixkv.tree import Namespace
from radixkv.tree.namespace import check_namespace

P = ParamSpec("P")
T = TypeVar("T")
First = TypeVar("First")
# Reads an argument, which it names in its error.
Read: TypeAlias = Callable[[Any, str], Any]


class Sender(Protocol):
    """Sends calls, and waits for their results."""

    def send(self, call: ClientCall[T]) -> T: ...


class AsyncSender(Protocol):
    """Sends calls; their results are awaited."""

    async def send(self, call: ClientCall[T]) -> T: ...


def built(build: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `build`; raises InvalidArgumentError for a value that no message can hold."""
    names, read = _parameters_of(build)
    # More than there are names go on to `build`, which raises Python's own error.
    given = [read[name](value, name) for name, value in zip(names, args, strict=False)]
    named = {name: read.get(name, _as_is)(value, name) for name, value in kwargs.items()}
    try:
        return build(*given, *args[len(given) :], **named)  # type: ignore[arg-type]
    except InvalidArgumentError:
        raise
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"arguments must fit in a message; got {error}") from error


def _as_is(value: Any, name: str) -> Any:
    return value


def _as_namespace(value: Any, name: str) -> Any:
    check_namespace(value)
    return value


def _unless_none(read: Read) -> Read:
    return lambda value, name: None if value is None else read(value, name)


# Of seconds and loads; a router takes no larger ones.
LARGEST_NUMBER = 1e12

# By annotation. What has another one is read by `build`.
_READ: dict[Any, Read] = {
    int: lambda value, name: between(0, 2**64 - 1, **{name: value}),
    bool: as_flag,
    str: as_text,
    float: lambda value, name: as_number(value, name, most=LARGEST_NUMBER),
    Namespace: _as_namespace,
}
_READ |= {annotation | None: _unless_none(read) for annotation, read in _READ.items()}


@functools.cache
def _parameters_of(build: Callable[..., Any]) -> tuple[list[str], dict[str, Read]]:
    """The names of what may be given by place, and what reads each parameter."""
    parameters = inspect.signature(build).parameters.values()
    by_place = [each.name for each in parameters if each.kind == each.POSITIONAL_OR_KEYWORD]
    return by_place, {each.name: _READ.get(each.annotation, _as_is) for each in parameters}


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
