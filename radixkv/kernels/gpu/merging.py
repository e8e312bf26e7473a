"""How many warps of `merge.cu` share the partial results of a token and head."""

# Warps of a block, parts that one of them has on their way, and blocks a multiprocessor.
WARPS, AT_ONCE, MERGE_BLOCKS = 8, 4, 6


def split_of(most_parts: int) -> int:
    """Warps that each row gets where one has so many parts at most."""
    return min(WARPS, 1 << max(0, (most_parts - 1) // AT_ONCE).bit_length())
