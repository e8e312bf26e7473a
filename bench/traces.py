"""The request traces that benchmarks and tests replay; bench/README.md says whose they are."""

import os
from pathlib import Path

from bench.report import ROOT
from radixkv.lab.logs.reading import Reading, read_log
from radixkv.lab.logs.store import StoredLog

BLOCKS = "mooncake_conversation"
TOKENIZER = "tokenizer_smollm2.json.xz"


def find_traces() -> Path:
    """Their folder: RADIXKV_TRACES, or shared/traces next to the project."""
    return Path(os.environ.get("RADIXKV_TRACES") or ROOT.parent / "shared" / "traces")


def read(traces: Path, name: str) -> StoredLog:
    """The trace of that name, tokenized."""
    return read_log(traces / f"{name}.jsonl.xz", Reading(tokenizer=traces / TOKENIZER))
