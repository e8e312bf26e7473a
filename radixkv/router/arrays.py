"""Types of the arrays that have an item for each worker."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
# Tokens that are held; of workers that are doubted, a part of them.
Lengths: TypeAlias = NDArray[np.int32] | FloatArray
