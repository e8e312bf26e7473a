"""The ways to cut a step that are weighed against one another."""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

from radixkv.attention.shared_prefix.plan import Shape

# Query rows of the largest narrow tile.
NARROW_ROWS = 64


class Cut(NamedTuple):
    """Slots of the pieces, slots that a share must save, and whether wide tiles are whole or half:
    see `Shape`."""

    shortest_narrow: int
    longest_narrow: int
    shortest_wide: int
    share: int = 64
    halves: int = 1


# Of all ways of `bench.gpu.calibrate` these few give nearly what all of them would. The first is
# for large batches under eight KV heads. Short pieces are for few blocks, as of one KV head; large
# shares for trees of many short runs.
CUTS = (
    Cut(256, 1024, 256),
    Cut(64, 256, 256),
    Cut(128, 512, 512, share=256),
    Cut(64, 256, 512, halves=2),
    Cut(128, 512, 1024, halves=2),
    Cut(64, 256, 256, share=256, halves=2),
    Cut(32, 128, 256, halves=2),
)


@cache
def candidates(shape: Shape, max_query: int) -> tuple[Shape, ...]:
    """`shape` cut in the ways of CUTS.

    max_query: the most new tokens of a request.
    """
    rows = max_query * shape.group
    if max_query > 1 and rows > shape.narrow_rows:
        # All tokens of a request in one tile, so that its own slots are read once.
        fitting = min(1 << (rows - 1).bit_length(), NARROW_ROWS, shape.wide_rows)
        shape = replace(shape, narrow_rows=max(shape.narrow_rows, fitting))
    return tuple(
        replace(
            shape,
            wide_rows=max(min(64, shape.wide_rows), shape.wide_rows // cut.halves),
            shortest_narrow=cut.shortest_narrow,
            longest_narrow=cut.longest_narrow,
            shortest_wide=cut.shortest_wide,
            share=cut.share,
        )
        for cut in CUTS
    )


def coarser(shape: Shape) -> Shape:
    """`shape` with pieces twice as long, and fewer runs that are read for several requests."""
    return replace(
        shape,
        shortest_narrow=2 * shape.shortest_narrow,
        longest_narrow=2 * shape.longest_narrow,
        shortest_wide=2 * shape.shortest_wide,
        share=2 * shape.share,
    )
