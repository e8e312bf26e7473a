"""Tickets in C++: see `kernels/tree/ticket_ring.hpp`."""

from radixkv.kernels._core import TicketRing
from radixkv.tree.tickets import Tickets


class NativeTickets(TicketRing, Tickets):
    """See `Tickets`."""

    core = "native"
