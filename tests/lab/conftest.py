import json
from collections.abc import Callable
from pathlib import Path

import pytest

from radixkv.lab.logs.reading import Reading, read_log
from radixkv.lab.logs.store import StoredLog


@pytest.fixture(autouse=True, scope="session")
def _cache_folder(tmp_path_factory: pytest.TempPathFactory):
    """What tests tokenize is kept for the tests of this run alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RADIXKV_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def read_trace(traces: Path, _cache_folder) -> Callable[[str], StoredLog]:
    """The trace of a name, in tokens of the tokenizer beside it."""

    def read(name: str) -> StoredLog:
        tokenizer = traces / "tokenizer_smollm2.json.xz"
        return read_log(traces / f"{name}.jsonl.xz", Reading(tokenizer=tokenizer))

    return read


@pytest.fixture
def read_blocks(tmp_path: Path) -> Callable[..., StoredLog]:
    """A log of prompts that are named by the hashes of their blocks."""

    def read(hashes: list[list[int]], *, lengths: list[int]) -> StoredLog:
        path = tmp_path / "blocks.jsonl"
        rows = zip(hashes, lengths, strict=True)
        lines = [json.dumps({"hash_ids": ids, "input_length": length}) for ids, length in rows]
        path.write_text("\n".join(lines))
        return read_log(path)

    return read
