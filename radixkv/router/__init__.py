"""The router: which worker holds how much of a prompt, and which one gets it.

`PrefixIndex` mirrors the workers' caches, `policies.py` decides, `Router` does both.
"""

from radixkv.router.index import PrefixIndex, WorkerView

__all__ = ["PrefixIndex", "WorkerView"]
