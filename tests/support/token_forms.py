"""Every form in which token ids may be given."""

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

TOKEN_FORMS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "int32": lambda ids: np.array(ids, np.int32),
    "int64": lambda ids: np.array(ids, np.int64),
    "uint32": lambda ids: np.array(ids, np.uint32),
    "strided": lambda ids: np.array(ids, np.int32).repeat(2)[::2],
    "bytes": lambda ids: np.array(ids, "<i4").tobytes(),
    "bytearray": lambda ids: bytearray(np.array(ids, "<i4").tobytes()),
    "array i": lambda ids: array("i", ids),
    "array q": lambda ids: array("q", ids),
    "memoryview": lambda ids: memoryview(array("i", ids)),
    "numpy ints": lambda ids: [np.int64(id) for id in ids],
}
