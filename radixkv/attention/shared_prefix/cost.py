"""What a step costs flat, and as a tree by each of a few ways to cut it."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radixkv.attention.shared_prefix.plan import SURVEY
from radixkv.pages import round_up

Float64Array = NDArray[np.float64]


@dataclass(frozen=True)
class Card:
    """Microseconds, and bytes or operations a microsecond; `bench.gpu.calibrate` measures them.

    A flat kernel reads what is shared once from memory and the other times from its cache. block:
    what one narrow block reads by itself. begin: what a narrow block takes beside reading. tail: of
    the longest narrow block, this share shows after the others. half_slot, full_slot: a wide
    block's time for a slot under up to 64 query rows, and under more. overlap: both kinds of items
    run side by side; this share of the shorter one shows where wide blocks keep all multiprocessors
    busy. parts: bytes of partial results. part: for one part more of the token that has
    most.
    """

    multiprocessors: int = 132
    flat_launch: float = 14.0
    flat_compute: float = 970000000.0
    tree_launch: float = 6.9
    memory: float = 4500000.0
    cache: float = 7050000.0
    block: float = 8650.0
    begin: float = 0.00011
    tail: float = 0.053
    half_slot: float = 0.00976
    full_slot: float = 0.01591
    overlap: float = 0.54
    parts: float = 2340000.0
    part: float = 0.031


H200 = Card()


@dataclass(frozen=True)
class LatentCard:
    """As `Card`, of the kernels over latents; one block runs on each multiprocessor.

    begin: what an item takes beside its slots. slot: a block's time for one, under up to 64 rows.
    tile_rows: rows that the flat kernel computes together, whether there are as many or not.
    """

    multiprocessors: int = 132
    flat_launch: float = 14.0
    flat_compute: float = 670000000.0
    tile_rows: int = 64
    tree_launch: float = 13.6
    memory: float = 4500000.0
    cache: float = 7050000.0
    begin: float = 2.4
    slot: float = 0.0332
    parts: float = 15000000.0


H200_LATENT = LatentCard()


@dataclass(frozen=True)
class Model:
    """What a pool and the queries over it look like. rope_dim: of latents, by which keys are longer
    than the values that they begin with."""

    heads: int
    kv_heads: int
    head_dim: int
    itemsize: int
    rope_dim: int = 0


class Costs(NamedTuple):
    """Estimated microseconds of one layer: flat, and by each way to cut, (n,)."""

    flat_us: float
    tree_us: Float64Array


def costs(survey: NDArray[np.int64], max_query: int, model: Model, card: Card = H200) -> Costs:
    """What the ways of `survey` (see `Planner.survey`) cost, and what the step costs flat."""
    of = dict(zip(SURVEY, survey.T.astype(np.float64), strict=True))
    if model.rope_dim:
        return _latent_costs(of, max_query, model, H200_LATENT)
    return Costs(_flat_us(of, max_query, model, card), _tree_us(of, model, card))


def _flat_us(of: dict[str, Float64Array], max_query: int, model: Model, card: Card) -> float:
    slot = 2 * model.kv_heads * model.head_dim * model.itemsize
    unique, total = float(of["unique"][0]), float(of["total"][0])
    read = unique * slot / card.memory + (total - unique) * slot / card.cache
    work = total * max_query * model.heads * model.head_dim * 4 / card.flat_compute
    return card.flat_launch + max(read, work)


def _tree_us(of: dict[str, Float64Array], model: Model, card: Card) -> Float64Array:
    narrow, (wide, busy) = _narrow_us(of, model, card), _wide_us(of, model, card)
    slot = 2 * model.kv_heads * model.head_dim * model.itemsize
    shown = card.overlap * busy
    side_by_side = np.maximum(narrow, wide) + shown * np.minimum(narrow, wide)
    read = np.maximum(side_by_side, of["unique"] * slot / card.memory)
    written = of["parts"] * model.heads * model.head_dim * 8 / card.parts
    merged: Float64Array = card.tree_launch + read + written + card.part * of["most_parts"]
    return merged


def _narrow_us(of: dict[str, Float64Array], model: Model, card: Card) -> Float64Array:
    slot = 2 * model.head_dim * model.itemsize
    longest = of["narrow_longest"] * slot / card.block
    all_read = of["narrow_slots"] * model.kv_heads * slot / card.memory
    begun = of["narrow_items"] * model.kv_heads * card.begin
    return np.maximum(all_read + begun + card.tail * longest, longest)


def _wide_us(
    of: dict[str, Float64Array], model: Model, card: Card
) -> tuple[Float64Array, Float64Array]:
    """In waves of blocks of about the same length; and the share of the multiprocessors' time
    meanwhile that wide blocks take."""
    items = np.maximum(of["wide_items"], 1)
    waves = np.ceil(items * model.kv_heads / card.multiprocessors)
    slots = np.maximum(waves * of["wide_slots"] / items, of["wide_longest"])
    slot = card.half_slot + (card.full_slot - card.half_slot) * _fullness(of)
    spread = of["wide_slots"] * model.kv_heads / card.multiprocessors
    return slots * slot * (model.head_dim / 128), spread / np.maximum(slots, 1)


def _fullness(of: dict[str, Float64Array]) -> Float64Array:
    """The share of wide slots that is under more than 64 query rows."""
    full: Float64Array = of["wide_halves"] / np.maximum(of["wide_slots"], 1) - 1
    return np.maximum(full, 0)


def _latent_costs(
    of: dict[str, Float64Array], max_query: int, model: Model, card: LatentCard
) -> Costs:
    slot = model.head_dim * model.itemsize
    unique, total = float(of["unique"][0]), float(of["total"][0])
    read = unique * slot / card.memory + (total - unique) * slot / card.cache
    rows = round_up(max_query * model.heads, card.tile_rows)
    v_head_dim = model.head_dim - model.rope_dim
    work = total * rows * (model.head_dim + v_head_dim) * 2 / card.flat_compute
    # Blocks take items in turn, the wide ones first.
    wide = np.ceil(of["wide_items"] * model.kv_heads / card.multiprocessors)
    items = of["wide_items"] + of["narrow_items"]
    waves = np.ceil(items * model.kv_heads / card.multiprocessors)
    slots = wide * of["wide_longest"] + (waves - wide) * of["narrow_longest"]
    slots = np.maximum(slots, of["narrow_longest"])
    computed = slots * card.slot + waves * card.begin
    written = of["parts"] * model.heads * v_head_dim * 2 * model.itemsize / card.parts
    tree = np.maximum(computed, of["unique"] * slot / card.memory) + written
    return Costs(card.flat_launch + max(read, work), card.tree_launch + tree)
