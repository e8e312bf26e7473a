"""A thread that probes workers, besides their watches.

So a watch that lags is noticed, and a worker that is gone is known within seconds: its watch only
goes silent.
"""

import logging
import threading

from radixkv.errors import OverloadedError, RadixKVError, ServiceUnavailableError
from radixkv.router.feeding import Feeder, WorkerClient
from radixkv.router.index import PrefixIndex

logger = logging.getLogger(__name__)

# A worker that does not answer by then delays the probes of the others.
_TIMEOUT_S = 1.0


class Prober:
    """Probes each worker every `every_s`, and notes its revision in the index."""

    def __init__(self, index: PrefixIndex, every_s: float) -> None:
        self._index, self._every_s = index, every_s
        self._probed: dict[str, tuple[WorkerClient, Feeder]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="radixkv-probes", daemon=True)

    def add(self, worker: str, client: WorkerClient, feeder: Feeder) -> None:
        """Probe that worker also; its feeder gets the results."""
        self._probed[worker] = client, feeder
        if not self._thread.ident:
            self._thread.start()

    def remove(self, worker: str) -> None:
        """Probe a worker no longer; nothing for one that is not probed."""
        self._probed.pop(worker, None)

    def stop(self) -> None:
        """End the probes, and wait for the thread. Idempotent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            for worker, (client, feeder) in list(self._probed.items()):
                if self._stopping.is_set():
                    return
                self._probe(worker, client, feeder)

    def _probe(self, worker: str, client: WorkerClient, feeder: Feeder) -> None:
        try:
            info = client.server_info(timeout_s=_TIMEOUT_S)
            feeder.answered()
            self._index.note_revision(worker, info.epoch, info.revision)
        except OverloadedError:
            feeder.answered()
        except ServiceUnavailableError as error:
            feeder.missed(error)
        except RadixKVError:
            pass  # it is busy, or was removed just now
        except Exception:
            logger.exception("worker %s cannot be probed; its probes end", worker)
            self.remove(worker)
