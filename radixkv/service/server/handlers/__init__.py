"""The RPCs, service by service; knows messages, nothing of connections."""

from radixkv.service.server.handlers.admin import AdminHandlers
from radixkv.service.server.handlers.context import HandlerContext
from radixkv.service.server.handlers.info import InfoHandlers
from radixkv.service.server.handlers.lease import LeaseHandlers
from radixkv.service.server.handlers.match import MatchHandlers
from radixkv.service.server.handlers.slots import SlotHandlers

__all__ = [
    "AdminHandlers",
    "HandlerContext",
    "InfoHandlers",
    "LeaseHandlers",
    "MatchHandlers",
    "SlotHandlers",
]
