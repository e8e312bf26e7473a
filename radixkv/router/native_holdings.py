"""The fast core, in C++: see `kernels/router/`."""

from radixkv.kernels._router import Holdings as _Holdings
from radixkv.router.holdings import RunInfo


class NativeHoldings(_Holdings):
    """See `holdings.Holdings`."""

    core = "native"

    def runs(self, holder: int) -> list[RunInfo]:
        return [RunInfo(*row) for row in _Holdings.runs(self, holder)]
