from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.tiny import save_tiny_model
from tests.e2e.alone import Alone


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See `save_tiny_model`."""
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder)
    return folder


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
