from typing import Any

import pytest

from radixkv.errors import CoreUnavailableError
from radixkv.router.factory import new_holdings
from radixkv.router.holdings import Holdings


def _available_cores() -> list[str]:
    try:
        new_holdings("native")
    except CoreUnavailableError:
        return ["python"]
    return ["python", "native"]


CORES = _available_cores()


@pytest.fixture(params=CORES)
def core(request: pytest.FixtureRequest) -> Any:
    """Each core of the index that is built here."""
    return request.param


@pytest.fixture
def holdings(core: str) -> Any:
    """Empty holdings, whole at the end of the test."""
    holdings: Holdings = new_holdings(core)
    yield holdings
    assert holdings.check_integrity() == []
