"""What RouterService answers, from one `Router`; knows messages, nothing of connections."""

from radixkv.errors import BatchTooLargeError, InvalidArgumentError
from radixkv.router.loads import LARGEST_LOAD
from radixkv.router.router import Pick, Router, WorkerStatus
from radixkv.rpc import codec
from radixkv.rpc.call import Call
from radixkv.rpc.limits import MAX_PICKS_A_FINISH
from radixkv.v1 import router_pb2
from radixkv.v1.types_pb2 import ResponseHeader


class RouterHandlers:
    """Answers from `router`, which may be picking for others at the same time."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def pick(self, request: router_pb2.PickRequest, call: Call) -> router_pb2.PickResponse:
        """All sequences placed, or an error and none."""
        namespace = codec.read_namespace(request.namespace)
        call.caller.check_namespace(namespace)
        if request.sequences or not request.finished_pick_ids:
            codec.check_batch(len(request.sequences))
        _check_finished(len(request.finished_pick_ids))
        prompts, keys = codec.read_sequences(request, call.data), _keys(request)
        loads, cost = _loads(request), request.cost or 1.0
        for pick_id in request.finished_pick_ids:
            self._router.finish_by_id(pick_id)
        picks = []
        for (token_ids, content), key in zip(prompts, keys, strict=True):
            pick = self._router.pick(
                token_ids, namespace, content=content, key=key, loads=loads, cost=cost
            )
            picks.append(_write_pick(pick))
            if loads is not None:
                loads[pick.worker] = min(loads[pick.worker] + cost, LARGEST_LOAD)
        return router_pb2.PickResponse(picks=picks)

    def lookup(self, request: router_pb2.LookupRequest, call: Call) -> router_pb2.LookupResponse:
        """Who holds how much of one prompt, longest first."""
        namespace = codec.read_namespace(request.namespace)
        call.caller.check_namespace(namespace)
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
        """How all workers stand, by name."""
        call.caller.check_unbound("list the workers of all tenants")
        router = self._router
        return router_pb2.ListWorkersResponse(
            workers=map(_write_status, router.workers()),
            policy=router.policy.name,
            distinct_tokens=router.index.total_size,
            num_parity_checks=router.parity.num_checks,
            num_parity_faults=router.parity.num_faults,
        )


def _check_finished(number: int) -> None:
    if number > MAX_PICKS_A_FINISH:
        raise BatchTooLargeError(
            f"{number} finished picks; a call takes {MAX_PICKS_A_FINISH}: split it",
            field="finished_pick_ids",
        )


def _keys(request: router_pb2.PickRequest) -> list[str | None]:
    if request.keys and len(request.keys) != len(request.sequences):
        raise InvalidArgumentError(
            f"{len(request.keys)} keys came with {len(request.sequences)} sequences; they go one "
            "to one, or without keys",
            field="keys",
        )
    return list(request.keys) or [None] * len(request.sequences)


def _loads(request: router_pb2.PickRequest) -> dict[str, float] | None:
    loads = {load.worker: load.load for load in request.loads}
    if len(loads) != len(request.loads):
        raise InvalidArgumentError("loads name a worker twice", field="loads")
    return loads or None


def _write_pick(pick: Pick) -> router_pb2.Pick:
    return router_pb2.Pick(
        worker=pick.worker,
        matched_length=pick.matched_length,
        best_length=pick.best_length,
        reason=pick.reason,
        pick_id=pick.id,
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
        trust=status.trust,
        is_here=status.is_here,
        last_error=status.last_error or "",
        num_unknown_changes=view.num_unknown,
        work_tokens=status.work,
    )
