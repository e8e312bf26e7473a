"""The ledger whose counts are in C++: see the ledger's binding in `kernels/`."""

from radixkv.cache.ledger import SlotLedger
from radixkv.kernels._core import Ledger


class NativeLedger(Ledger, SlotLedger):
    """See `SlotLedger`, which does what is seldom asked."""
