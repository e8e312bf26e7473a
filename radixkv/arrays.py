"""The array type of token ids and slots."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Int32Array: TypeAlias = NDArray[np.int32]

INT32_MAX = 2**31 - 1
EMPTY: Int32Array = np.empty(0, np.int32)
EMPTY.flags.writeable = False
