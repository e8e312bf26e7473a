"""The ledger whose counts are in C++: see `kernels/binding/ledger_binding.hpp`."""

from radixkv.cache.ledger import SlotLedger
from radixkv.kernels._core import Ledger


class NativeLedger(Ledger, SlotLedger):
    """See `SlotLedger`, which does what is seldom asked."""
