"""What is cached, told as SGLang and vLLM tell it: events about blocks, over ZeroMQ.

Whoever routes by such events (Dynamo, llm-d, AIBrix, vLLM's production stack) follows a cache of
ours unedited. `blocks.py` makes blocks of any size from the runs that a tree reports, `names.py`
names them as either engine does, `messages.py` is what goes over the wire, `publisher.py` sends it
and sends again what a subscriber missed, `cache.py` is the four of them for a `PrefixCache`.
"""

from radixkv.integrations.events.blocks import BlockTranslator
from radixkv.integrations.events.cache import CacheEvents
from radixkv.integrations.events.names import BLOCK_NAMES, BlockNames, SGLangNames, VllmNames
from radixkv.integrations.events.publisher import EventPublisher

__all__ = [
    "BLOCK_NAMES",
    "BlockNames",
    "BlockTranslator",
    "CacheEvents",
    "EventPublisher",
    "SGLangNames",
    "VllmNames",
]
