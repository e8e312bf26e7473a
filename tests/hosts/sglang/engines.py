"""SGLang's engine on the CPU."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import requests

from tests.hosts.models import CONTEXT
from tests.hosts.ports import free_port

STUBS = Path(__file__).parent / "stubs"
START_S = 600


def environment(**more):
    """What a process needs to run SGLang here."""
    return os.environ | {
        "PYTHONPATH": f"{STUBS}{os.pathsep}{Path(__file__).parents[3]}",
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_EXTERNAL_MODEL_PACKAGE": "llama_only",  # importing them all takes most of a start
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
        **more,
    }


def arguments(model, backend, *, page_size=1, num_slots=1200, **more):
    """Of `Engine`. backend: None for SGLang's own cache."""
    return {
        "model_path": str(model),
        "skip_tokenizer_init": True,
        "device": "cpu",
        "attention_backend": "torch_native",
        "sampling_backend": "pytorch",
        "dtype": "float32",
        "disable_overlap_schedule": True,
        "max_total_tokens": num_slots,
        "max_running_requests": 8,
        "page_size": page_size,
        "mem_fraction_static": 0.3,
        "context_length": CONTEXT,
        "log_level": "warning",
        "skip_server_warmup": True,
        "sleep_on_idle": True,
        "radix_cache_backend": backend,
        "chunked_prefill_size": 128,
        "enable_cache_report": True,
        "random_seed": 1,
        **more,
    }


class Server:
    """SGLang's HTTP server with our cache, in a group of processes of its own.

    asked: see `arguments`. more: of its environment.
    """

    def __init__(self, model, log, asked=None, **more):
        self.address, self._log = f"http://127.0.0.1:{free_port()}", log.open("w+")
        port = self.address.rpartition(":")[2]
        flags = _flags(arguments(model, "radixkv", **asked or {}))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sglang.launch_server", "--port", port, *flags],
            env=environment(SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY="1", **more),
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait(self):
        """Until it answers."""
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            assert self.is_alive, self.log()
            try:
                if requests.get(f"{self.address}/health", timeout=5).status_code == 200:
                    return
            except requests.ConnectionError:
                pass
            time.sleep(0.5)
        raise AssertionError(self.log())

    @property
    def is_alive(self):
        """A check of SGLang's own that failed would have ended it."""
        return self._process.poll() is None

    def log(self):
        """The end of what it wrote."""
        self._log.seek(0)
        return self._log.read()[-4000:]

    def kill(self, number=signal.SIGKILL):
        """End all its processes."""
        if self.is_alive:
            os.killpg(self._process.pid, number)
        self._process.wait(60)


def _flags(of):
    for name, value in of.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            yield flag
        elif value is not None and value is not False:
            yield from (flag, str(value))
