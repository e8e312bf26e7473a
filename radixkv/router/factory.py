"""Which core of the router runs."""

from radixkv.cores import load
from radixkv.router.cheapest import CheapestWorker
from radixkv.router.holdings import Holdings


def new_holdings(core: str | None = None) -> Holdings:
    """Empty holdings.

    core: "native", "python", or None: RADIXKV_CORE, else native where it is built.
    Raises InvalidArgumentError, CoreUnavailableError.
    """
    chosen: type[Holdings] = load(
        core,
        native="radixkv.router.native_holdings:NativeHoldings",
        python="radixkv.router.python_holdings:PythonHoldings",
    )
    return chosen()


def new_cheapest(core: str | None = None) -> CheapestWorker:
    """What chooses the cheapest worker; core and errors as of `new_holdings`."""
    chosen: CheapestWorker = load(
        core,
        native="radixkv.kernels._router:cheapest",
        python="radixkv.router.cheapest:cheapest",
    )
    return chosen
