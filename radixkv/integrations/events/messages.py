"""What goes over the wire: MessagePack, in the form that SGLang and vLLM share.

A batch is an array [time, events, rank of data parallelism]; an event a map with its "type".
"""

from typing import TypeAlias

import msgspec

MEDIUM = "GPU"  # where blocks are: in the device's memory


class _Event(msgspec.Struct, omit_defaults=True, tag=True, gc=False):
    pass


class BlockStored(_Event):
    """Blocks are cached, each behind the one before it, the first behind `parent_block_hash`.

    token_ids: those of all blocks, `block_size` for each.
    """

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    cache_salt: str | None = None


class BlockRemoved(_Event):
    """Blocks are gone."""

    block_hashes: list[int]
    medium: str | None


class AllBlocksCleared(_Event):
    """Everything was forgotten."""


BlockEvent: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared


class EventBatch(msgspec.Struct, array_like=True, gc=False):
    """Events of one moment. ts: seconds since 1970."""

    ts: float
    events: list[BlockEvent]
    data_parallel_rank: int | None = None
