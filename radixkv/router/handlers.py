"""The RPCs of RouterService, from one `Router`; knows messages, nothing of connections."""

from collections.abc import Callable, Iterable

from radixkv.errors import (
    BatchTooLargeError,
    InvalidArgumentError,
    MessageTooLargeError,
    UnsupportedError,
)
from radixkv.prompts import ModelPrompts
from radixkv.router.loads import LARGEST_LOAD
from radixkv.router.membership import Membership
from radixkv.router.router import Pick, Router, WorkerStatus
from radixkv.rpc import codec
from radixkv.rpc.call import Call
from radixkv.rpc.codec import Key
from radixkv.rpc.limits import MAX_PICKS_A_FINISH, MOST_TEXT_BYTES
from radixkv.v1 import router_pb2
from radixkv.v1.types_pb2 import ResponseHeader


class RouterHandlers:
    """The RPCs over `router`, which others may be using.

    count: called with each pick. prompts: of the model, for text and messages; None: they are
    refused. members: adds and removes workers; None: the calls are refused.
    """

    def __init__(
        self,
        router: Router,
        count: Callable[[Pick], None] | None = None,
        prompts: ModelPrompts | None = None,
        members: Membership | None = None,
    ) -> None:
        self._router, self._count = router, count
        self._prompts, self._members = prompts, members

    def pick(self, request: router_pb2.PickRequest, call: Call) -> router_pb2.PickResponse:
        """A worker for each prompt, or an error and no picks."""
        namespace = codec.read_namespace(request.namespace)
        call.caller.check_namespace(namespace)
        size = len(request.sequences) + len(request.prompts)
        if size or not request.finished_pick_ids:
            codec.check_batch(size)
        _check_finished(len(request.finished_pick_ids))
        prompts, keys = self._read_prompts(request, call), _keys(request, size)
        loads, load_weight = _loads(request), request.cost or 1.0
        if loads is not None or request.cost:
            call.caller.check_unbound("say how loaded workers are, which moves the picks of others")
        caller = call.caller.name
        for pick_id in request.finished_pick_ids:
            self._router.finish_by_id(pick_id, caller)
        call.caller.quota.check("picks", self._num_open(call) + len(prompts))
        picks = []
        for (token_ids, content), key in zip(prompts, keys, strict=True):
            pick = self._router.pick(
                token_ids,
                namespace,
                content=content,
                key=key,
                loads=loads,
                load_weight=load_weight,
                owner=caller,
            )
            if self._count is not None:
                self._count(pick)
            picks.append(_write_pick(pick))
            if loads is not None:
                loads[pick.worker] = min(loads[pick.worker] + load_weight, LARGEST_LOAD)
        return router_pb2.PickResponse(picks=picks)

    def _read_prompts(self, request: router_pb2.PickRequest, call: Call) -> list[Key]:
        _check_text(request.prompts)
        read = codec.read_sequences(request, call.data) if request.sequences else []
        named = enumerate(request.prompts)
        return [*read, *(self._made_of(each, f"prompts[{at}]") for at, each in named)]

    def _made_of(self, prompt: router_pb2.ModelPrompt, field: str) -> Key:
        """The tokens of text or messages. Raises UnsupportedError without a model."""
        if self._prompts is None:
            raise UnsupportedError(
                f"{field} needs the router to know the model: start it with --model FOLDER",
                field=field,
            )
        with codec.blame(field):
            form = prompt.WhichOneof("form")
            if form is None:
                raise InvalidArgumentError(f"{field} must have text or chat; got neither")
            made = self._prompts.of_text if form == "text" else self._prompts.of_chat
            return Key(*made(getattr(prompt, form)))

    def _num_open(self, call: Call) -> int:
        """0 for callers without a limit, whose picks need not be counted."""
        return 0 if call.caller.quota.picks is None else self._router.num_open(call.caller.name)

    def lookup(self, request: router_pb2.LookupRequest, call: Call) -> router_pb2.LookupResponse:
        """How much of one prompt each worker holds, longest first."""
        namespace = codec.read_namespace(request.namespace)
        call.caller.check_namespace(namespace)
        if request.HasField("prompt"):
            _check_text([request.prompt])
            token_ids, content = self._made_of(request.prompt, "prompt")
        else:
            token_ids, content = codec.read_sequence(request.sequence, "sequence")
        found = self._router.index.lookup(token_ids, namespace, content=content)
        return router_pb2.LookupResponse(
            matches=[
                router_pb2.WorkerMatch(worker=worker, matched_length=length)
                for worker, length in found.items()
            ]
        )

    def list_workers(
        self, _: router_pb2.ListWorkersRequest, call: Call
    ) -> router_pb2.ListWorkersResponse:
        """The state of all workers, by name."""
        call.caller.check_unbound("list the workers of all tenants")
        router = self._router
        return router_pb2.ListWorkersResponse(
            workers=map(_write_status, router.workers()),
            policy=router.policy.name,
            distinct_tokens=router.index.total_size,
            num_parity_checks=router.cache_misses.num_checks,
            num_parity_faults=router.cache_misses.num_misses,
        )

    def add_worker(
        self, request: router_pb2.AddWorkerRequest, _: Call
    ) -> router_pb2.AddWorkerResponse:
        """Route to one server more."""
        self._membership().add(request.worker or request.address, request.address)
        return router_pb2.AddWorkerResponse()

    def remove_worker(
        self, request: router_pb2.RemoveWorkerRequest, _: Call
    ) -> router_pb2.RemoveWorkerResponse:
        """Route to a server no longer."""
        self._membership().remove(request.worker)
        return router_pb2.RemoveWorkerResponse()

    def _membership(self) -> Membership:
        if self._members is None:
            raise UnsupportedError("the program of this router adds and removes its workers")
        return self._members


def _check_text(prompts: Iterable[router_pb2.ModelPrompt]) -> None:
    size = sum(each.ByteSize() for each in prompts)
    if size > MOST_TEXT_BYTES:
        raise MessageTooLargeError(
            f"text and chats of a call must be at most {MOST_TEXT_BYTES} bytes; got {size}",
            field="prompts",
            size=size,
        )


def _check_finished(number: int) -> None:
    if number > MAX_PICKS_A_FINISH:
        raise BatchTooLargeError(
            f"finished_pick_ids must be at most {MAX_PICKS_A_FINISH}; got {number}: split the call",
            field="finished_pick_ids",
        )


def _keys(request: router_pb2.PickRequest, size: int) -> list[str | None]:
    if request.keys and len(request.keys) != size:
        raise InvalidArgumentError(
            f"keys must be empty, or one for each prompt; got {len(request.keys)} keys for {size} "
            "prompts",
            field="keys",
        )
    return list(request.keys) or [None] * size


def _loads(request: router_pb2.PickRequest) -> dict[str, float] | None:
    loads = {load.worker: load.load for load in request.loads}
    if len(loads) != len(request.loads):
        raise InvalidArgumentError("loads must name each worker once; got one twice", field="loads")
    return loads or None


def _write_pick(pick: Pick) -> router_pb2.Pick:
    return router_pb2.Pick(
        worker=pick.worker,
        matched_length=pick.matched_length,
        best_length=pick.best_length,
        reason=pick.reason,
        pick_id=pick.id,
        prompt_length=pick.matched_length + pick.to_compute,
    )


def _write_status(status: WorkerStatus) -> router_pb2.WorkerStatus:
    view = status.view
    return router_pb2.WorkerStatus(
        worker=view.worker,
        address=status.address,
        applied=ResponseHeader(epoch=view.epoch, revision=view.revision),
        num_tokens=view.num_tokens,
        silent_s=view.silent_s,
        state=view.state,
        load=status.load,
        lag_revisions=view.lag,
        trust=status.staleness_weight,
        is_here=status.is_here,
        last_error=status.last_error or "",
        num_unknown_changes=view.num_unknown,
        work_tokens=status.recent_load,
    )
