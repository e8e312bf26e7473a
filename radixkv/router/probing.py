"""A thread that asks workers where they are, apart from their watches.

So a watch that lags shows, and a worker that is gone is known within seconds: its watch only goes
silent.
"""

import logging
import threading

from radixkv.errors import OverloadedError, RadixKVError, ServiceUnavailableError
from radixkv.router.feeding import Feeder, WorkerClient
from radixkv.router.index import PrefixIndex

logger = logging.getLogger(__name__)

# A worker that does not answer by then delays what is known of the others; its watch will tell.
_PATIENCE_S = 1.0


class Prober:
    """Asks each worker every `every_s`, and notes its revision in the index."""

    def __init__(self, index: PrefixIndex, every_s: float) -> None:
        self._index, self._every_s = index, every_s
        self._asked: dict[str, tuple[WorkerClient, Feeder]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="radixkv-probes", daemon=True)

    def add(self, worker: str, client: WorkerClient, feeder: Feeder) -> None:
        """Ask that worker, too; its feeder hears whether it is there."""
        self._asked[worker] = client, feeder
        if not self._thread.ident:
            self._thread.start()

    def remove(self, worker: str) -> None:
        self._asked.pop(worker, None)

    def stop(self) -> None:
        """Ask nobody any more, and wait for the thread. Idempotent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            for worker, (client, feeder) in list(self._asked.items()):
                if self._stopping.is_set():
                    return
                self._ask(worker, client, feeder)

    def _ask(self, worker: str, client: WorkerClient, feeder: Feeder) -> None:
        try:
            info = client.server_info(timeout_s=_PATIENCE_S)
            feeder.answered()
            self._index.note_revision(worker, info.epoch, info.revision)
        except OverloadedError:
            feeder.answered()
        except ServiceUnavailableError as error:
            feeder.missed(error)
        except RadixKVError:
            pass  # it is busy, or was removed just now
        except Exception:
            logger.exception("worker %s cannot be asked where it is, and is not any more", worker)
            self.remove(worker)
