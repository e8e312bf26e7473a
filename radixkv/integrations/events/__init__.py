"""What is cached, published as SGLang and vLLM do: events about blocks, over ZeroMQ.

Out: what reads such events (Dynamo, llm-d, AIBrix, vLLM's production stack) follows a cache
of ours unedited. `blocks.py` makes blocks of any size from the runs that a tree reports, `names.py`
names them as either engine does, `messages.py` is what goes over the wire, `publisher.py` sends it
and sends again what a subscriber missed, `cache.py` is all of them for a `PrefixCache`.

In: `mirror.py` makes runs of an engine's blocks, and `follow.py` feeds a router's index with the
events of an engine that knows nothing of us.
"""

from radixkv.integrations.events.blocks import BlockTranslator
from radixkv.integrations.events.cache import CacheEvents
from radixkv.integrations.events.follow import EngineEvents
from radixkv.integrations.events.mirror import BlockMirror
from radixkv.integrations.events.names import BLOCK_NAMES, BlockNames, SGLangNames, VllmNames
from radixkv.integrations.events.publisher import EventPublisher

__all__ = [
    "BLOCK_NAMES",
    "BlockMirror",
    "BlockNames",
    "BlockTranslator",
    "CacheEvents",
    "EngineEvents",
    "EventPublisher",
    "SGLangNames",
    "VllmNames",
]
