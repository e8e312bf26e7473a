"""What the RPCs answer, service by service; knows messages, nothing of connections."""

from radixkv.service.handlers.admin import AdminHandlers
from radixkv.service.handlers.desk import Desk
from radixkv.service.handlers.info import InfoHandlers
from radixkv.service.handlers.lease import LeaseHandlers
from radixkv.service.handlers.match import MatchHandlers
from radixkv.service.handlers.slots import SlotHandlers

__all__ = [
    "AdminHandlers",
    "Desk",
    "InfoHandlers",
    "LeaseHandlers",
    "MatchHandlers",
    "SlotHandlers",
]
