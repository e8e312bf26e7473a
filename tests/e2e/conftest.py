from pathlib import Path

import pytest

from tests.cli.tiny import save_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See `save_tiny_model`."""
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder)
    return folder
