"""What gRPC means for a whole process: forks, idle event loops, memory that comes and goes."""

import ctypes
import gc
import logging
import os

from radixkv.errors import ForkedProcessError

_owner: int | None = None

# As many collections of the middle generation as come before one of all; Python's own is 10.
_OLD_COLLECTIONS = 100

# M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc, and their sizes; the second takes no more.
_MALLOC_OPTIONS = ((-1, 64 << 20), (-3, 32 << 20))


def claim_process() -> None:
    """Take gRPC for this process; raises ForkedProcessError if a parent process took it before."""
    global _owner
    pid = os.getpid()
    if _owner is None:
        _owner = pid
        logging.getLogger("asyncio").addFilter(_is_news)
    elif _owner != pid:
        raise ForkedProcessError(
            f"process {pid} was forked from {_owner} after that used gRPC; start it with spawn or "
            "forkserver, or fork before the first client or server",
            pid=pid,
            parent=_owner,
        )


def _is_news(record: logging.LogRecord) -> bool:
    """Drops what asyncio logs where two loops use gRPC, whose poller wakes both for one message."""
    is_idle = record.exc_info is not None and isinstance(record.exc_info[1], BlockingIOError)
    return not (is_idle and "PollerCompletionQueue" in record.getMessage())


def collect_rarely() -> None:
    """Let a tenth as many collections of cycles walk all objects of the process.

    For a process that does nothing but serve. One such walk keeps all calls waiting 25 ms beside a
    snapshot of 100,000 runs, and each snapshot brought one; what cycles hold here is little.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _OLD_COLLECTIONS)


def keep_freed_memory() -> None:
    """Let glibc keep up to 64 MiB that this process frees, instead of giving it back at once.

    For a process that does nothing but serve. A message of half a megabyte otherwise takes its
    buffers from the kernel again each time, page by page: as much time as all the rest of gRPC.
    Elsewhere than on glibc it does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, size in _MALLOC_OPTIONS:
            mallopt(option, size)
