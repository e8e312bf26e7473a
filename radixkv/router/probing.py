"""A thread that asks workers where they are, apart from their watches: a watch that lags shows."""

import logging
import threading

from radixkv.errors import RadixKVError
from radixkv.router.feeding import WorkerClient
from radixkv.router.index import PrefixIndex

logger = logging.getLogger(__name__)

# A worker that does not answer by then delays what is known of the others; its watch will tell.
_PATIENCE_S = 1.0


class Prober:
    """Asks each worker every `every_s`, and notes its revision in the index."""

    def __init__(self, index: PrefixIndex, every_s: float) -> None:
        self._index, self._every_s = index, every_s
        self._clients: dict[str, WorkerClient] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="radixkv-probes", daemon=True)

    def add(self, worker: str, client: WorkerClient) -> None:
        self._clients[worker] = client
        if not self._thread.ident:
            self._thread.start()

    def remove(self, worker: str) -> None:
        self._clients.pop(worker, None)

    def stop(self) -> None:
        """Ask nobody any more, and wait for the thread. Idempotent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            for worker, client in list(self._clients.items()):
                if self._stopping.is_set():
                    return
                self._ask(worker, client)

    def _ask(self, worker: str, client: WorkerClient) -> None:
        try:
            info = client.server_info(timeout_s=_PATIENCE_S)
            self._index.note_revision(worker, info.epoch, info.revision)
        except RadixKVError:
            pass  # it is away, which its watch tells, or was removed just now
        except Exception:
            logger.exception("worker %s cannot be asked where it is, and is not any more", worker)
            self.remove(worker)
