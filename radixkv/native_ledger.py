"""The ledger whose counts are in C++: see `kernels/tree/python_ledger.hpp`."""

from radixkv.kernels._core import Ledger
from radixkv.ledger import SlotLedger


class NativeLedger(Ledger, SlotLedger):
    """See `SlotLedger`, which does the rest: what is seldom asked."""
