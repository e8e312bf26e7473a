from typing import Any

import pytest

from radixkv.router.factory import new_holdings
from radixkv.router.holdings import Holdings


@pytest.fixture
def holdings(core: str) -> Any:
    """Empty holdings, whole at the end of the test."""
    holdings: Holdings = new_holdings(core)
    yield holdings
    assert holdings.check_integrity() == []
