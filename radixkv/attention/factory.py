"""Which planner runs."""

from radixkv.attention.shared_prefix.plan import Planner
from radixkv.cores import load


def new_planner(core: str | None = None) -> Planner:
    """The planner of decode steps that share prefixes.

    core: "native", "python", or None for the best there is; RADIXKV_CORE stands in for None.
    Raises InvalidArgumentError, CoreUnavailableError.
    """
    planner: Planner = load(
        core,
        native="radixkv.attention.shared_prefix.native_planner:plan_tree",
        python="radixkv.attention.shared_prefix.python_planner:plan_tree",
    )
    return planner
