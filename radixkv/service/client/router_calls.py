"""The calls of both clients of a router, in the form of `calls.py`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from radixkv.arguments import as_ids, as_number, as_text
from radixkv.errors import InvalidArgumentError
from radixkv.rpc import codec
from radixkv.rpc.codec import Prompt
from radixkv.rpc.method_table import ADD_WORKER, LIST_WORKERS, LOOKUP, PICK, REMOVE_WORKER
from radixkv.service.client.calls import ClientCall
from radixkv.tree import Namespace, TokenIds
from radixkv.v1 import router_pb2


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a completion's prompt, for a router that knows the model.

    Attributes
    ----------
    text
        Not empty.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Chat:
    """An OpenAI chat completion request, for a router that knows the model.

    Attributes
    ----------
    request
        Its body, as an object or as the JSON of one: {"messages": [...], "tools": [...]}.
    """

    request: Mapping[str, Any] | str | bytes


RouterPrompt: TypeAlias = "TokenIds | Prompt | Text | Chat"


@dataclass(frozen=True, slots=True)
class RoutedPick:
    """Where a prompt goes. Hand `pick_id` to `finish` when its request has ended.

    Attributes
    ----------
    worker
        The worker to use.
    matched_length
        Tokens that the worker holds.
    best_length
        The longest match of any.
    reason
        Why, for a person.
    pick_id
        Names the pick in `finish`.
    prompt_length
        Tokens of the prompt.
    """

    worker: str
    matched_length: int
    best_length: int
    reason: str
    pick_id: int
    prompt_length: int


@dataclass(frozen=True, slots=True)
class RoutedWorker:
    """A worker as the router sees it; see `WorkerStatus` of `proto/radixkv/v1/router.proto`.

    Attributes
    ----------
    worker
        The worker's name.
    address
        Where its server is.
    state
        Whether the index follows it: waiting, current or behind.
    num_tokens
        Tokens that it holds.
    load
        Of the requests that have not ended.
    is_here
        Whether it is known to live.
    last_error
        Of its watch or a probe; "": none.
    """

    worker: str
    address: str
    state: str
    num_tokens: int
    load: float
    is_here: bool
    last_error: str


def pick(
    prompt: RouterPrompt,
    namespace: Namespace | None = None,
    *,
    key: str | None = None,
    loads: Mapping[str, float] | None = None,
    load_weight: float = 0.0,
    finished: Iterable[int] = (),
    timeout_s: float | None = None,
) -> ClientCall[RoutedPick]:
    """The worker that a prompt goes to.

    Parameters
    ----------
    prompt
        Token ids, a `Prompt`, or, of a router that knows the model, a `Text` or a `Chat`.
    namespace
        What must be equal besides the tokens.
    key
        What belongs together, for policies that go by it.
    loads
        Present loads of the workers that may be picked; None: those that the router counts.
    load_weight
        What the prompt adds; 0: 1.
    finished
        pick_ids of the caller's requests that have ended.
    timeout_s
        Seconds; None: as `Client` says.

    Returns
    -------
    RoutedPick
        The worker, and tokens that it holds.

    Raises
    ------
    UnsupportedError
        For text where the router has no model.
    NoWorkersError
        Where no worker may be picked.
    """
    sequences, prompts = _written(prompt)
    request = router_pb2.PickRequest(
        namespace=codec.write_namespace(namespace) if namespace is not None else None,
        sequences=sequences,
        prompts=prompts,
        keys=[] if key is None else [key],
        loads=[] if loads is None else _written_loads(loads),
        cost=load_weight,
        finished_pick_ids=as_ids(finished, "finished"),
    )
    return ClientCall(PICK, request, timeout_s, _read_pick)


def finish(*pick_ids: int, timeout_s: float | None = None) -> ClientCall[None]:
    """The requests of these picks have ended.

    Parameters
    ----------
    timeout_s
        Seconds; None: as `Client` says.
    *pick_ids
        Of the picks.
    """
    request = router_pb2.PickRequest(finished_pick_ids=as_ids(pick_ids, "pick_ids"))
    return ClientCall(PICK, request, timeout_s, _nothing)


def lookup(
    prompt: RouterPrompt,
    namespace: Namespace | None = None,
    *,
    timeout_s: float | None = None,
) -> ClientCall[dict[str, int]]:
    """Tokens of a prompt that each worker holds, longest first; see `pick`.

    Parameters
    ----------
    prompt
        Token ids as (n,) int32, a list or bytes of little-endian int32; or a `Prompt`.
    namespace
        What must be equal besides the tokens.
    timeout_s
        Seconds; None: as `Client` says.

    Returns
    -------
    dict[str, int]
        Tokens by worker.
    """
    sequences, prompts = _written(prompt)
    request = router_pb2.LookupRequest(
        namespace=codec.write_namespace(namespace) if namespace is not None else None,
        sequence=sequences[0] if sequences else None,
        prompt=prompts[0] if prompts else None,
    )
    return ClientCall(LOOKUP, request, timeout_s, _read_lookup)


def workers(*, timeout_s: float | None = None) -> ClientCall[list[RoutedWorker]]:
    """All workers, by name.

    Parameters
    ----------
    timeout_s
        Seconds; None: as `Client` says.

    Returns
    -------
    list[RoutedWorker]
        As the router sees them now.
    """
    return ClientCall(LIST_WORKERS, router_pb2.ListWorkersRequest(), timeout_s, _read_workers)


def add_worker(
    address: str, worker: str = "", *, timeout_s: float | None = None
) -> ClientCall[None]:
    """Route to the server at `address` too. For the admin role.

    Parameters
    ----------
    address
        Where the server is, "host:port" or "unix:/path".
    worker
        Its name; empty: its address.
    timeout_s
        Seconds; None: as `Client` says.

    Raises
    ------
    InvalidArgumentError
        For a name in use.
    """
    request = router_pb2.AddWorkerRequest(worker=worker, address=address)
    return ClientCall(ADD_WORKER, request, timeout_s, _nothing)


def remove_worker(worker: str, *, timeout_s: float | None = None) -> ClientCall[None]:
    """Route to a server no longer. For the admin role.

    Parameters
    ----------
    worker
        The worker's name.
    timeout_s
        Seconds; None: as `Client` says.

    Raises
    ------
    InvalidArgumentError
        For an unknown name.
    """
    request = router_pb2.RemoveWorkerRequest(worker=worker)
    return ClientCall(REMOVE_WORKER, request, timeout_s, _nothing)


def _written_loads(loads: Mapping[str, float]) -> list[router_pb2.WorkerLoad]:
    if not isinstance(loads, Mapping):
        raise InvalidArgumentError(f"loads must be a mapping of workers; got {loads!r}")
    return [
        router_pb2.WorkerLoad(worker=as_text(worker, "loads"), load=as_number(load, "loads"))
        for worker, load in loads.items()
    ]


def _written(prompt: RouterPrompt) -> tuple[Sequence[Any], Sequence[Any]]:
    """As `sequences` and `prompts` of a message."""
    if isinstance(prompt, Text):
        return [], [router_pb2.ModelPrompt(text=prompt.text)]
    if isinstance(prompt, Chat):
        body = prompt.request
        chat = json.dumps(dict(body)) if isinstance(body, Mapping) else body
        data = chat.encode() if isinstance(chat, str) else chat
        return [], [router_pb2.ModelPrompt(chat=data)]
    whole = prompt if isinstance(prompt, Prompt) else Prompt(prompt)
    return [codec.write_sequence(whole, "prompt")], []


def _read_pick(response: router_pb2.PickResponse) -> RoutedPick:
    (one,) = response.picks
    return RoutedPick(
        worker=one.worker,
        matched_length=one.matched_length,
        best_length=one.best_length,
        reason=one.reason,
        pick_id=one.pick_id,
        prompt_length=one.prompt_length,
    )


def _read_lookup(response: router_pb2.LookupResponse) -> dict[str, int]:
    return {match.worker: match.matched_length for match in response.matches}


def _read_workers(response: router_pb2.ListWorkersResponse) -> list[RoutedWorker]:
    return [
        RoutedWorker(
            worker=one.worker,
            address=one.address,
            state=one.state,
            num_tokens=one.num_tokens,
            load=one.load,
            is_here=one.is_here,
            last_error=one.last_error,
        )
        for one in response.workers
    ]


def _nothing(_: object) -> None:
    return None
