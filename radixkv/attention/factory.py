"""Which planner runs."""

from collections.abc import Sequence

from radixkv.arrays import Int32Array
from radixkv.attention.shared_prefix.plan import Planner
from radixkv.cores import load


def new_planner(
    rows: Sequence[Int32Array], query_lens: Sequence[int], core: str | None = None
) -> Planner:
    """A planner of the step with these rows, see `Planner`.

    rows: one (context length,) int32 array a request, the slots of its new tokens at the end.
    query_lens: the number of new tokens of each, 1 or more. core: "native", "python", or None for
    the best there is; RADIXKV_CORE stands in for None.
    Raises InvalidArgumentError, CoreUnavailableError.
    """
    chosen: type[Planner] = load(
        core,
        native="radixkv.attention.shared_prefix.native_planner:NativePlanner",
        python="radixkv.attention.shared_prefix.python_planner:PythonPlanner",
    )
    return chosen(rows, query_lens)
