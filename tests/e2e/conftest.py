from collections.abc import Callable, Iterator

import pytest

from tests.e2e.alone import Alone


@pytest.fixture
def serve() -> Iterator[Callable[..., Alone]]:
    started = []

    def start(*arguments: str) -> Alone:
        started.append(Alone(*arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()
