"""Dynamo's own indexer as a process: `python -m dynamo.indexer`."""

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import requests

WORKER, MODEL, START_S = 1, "m", 60


class Indexer:
    """A running indexer, at `address`."""

    def __init__(self, address):
        self.address = address

    def register(self, endpoint, replay_endpoint, block_size):
        """Follow one publisher."""
        self._post(
            "/register",
            instance_id=WORKER,
            dp_rank=0,
            endpoint=endpoint,
            replay_endpoint=replay_endpoint,
            model_name=MODEL,
            block_size=block_size,
        )

    def tokens(self, ids):
        """How many tokens of `ids` it believes to be cached."""
        scores = self._post("/query", token_ids=ids, model_name=MODEL).get("scores") or {}
        return max((n for ranks in scores.values() for n in ranks.values()), default=0)

    def _post(self, path, **body):
        answer = requests.post(f"{self.address}{path}", json=body, timeout=10)
        answer.raise_for_status()
        return answer.json()


@contextmanager
def running_indexer(folder):
    """An indexer that answers, until it is left."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "indexer.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dynamo.indexer", "--port", str(port)],
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    found, until = Indexer(f"http://127.0.0.1:{port}"), time.monotonic() + START_S
    try:
        while True:
            try:
                requests.get(f"{found.address}/dump", timeout=5)
                break
            except requests.ConnectionError:
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.2)
        yield found
    finally:
        process.terminate()
        process.wait(10)
