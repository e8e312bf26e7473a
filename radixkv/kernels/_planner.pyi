from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]

def plan_tree(
    rows: Sequence[Int32Array], options: Int32Array
) -> tuple[Int32Array, Int32Array, Int32Array, Int32Array, Int32Array, Int32Array]:
    """Wide items, narrow items, q_indices, starts, runs and growing items of `TreePlan`."""
