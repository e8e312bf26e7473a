"""Sizes in whole pages."""


def ceil_div(n: int, size: int) -> int:
    """How many pieces of `size` hold `n`."""
    return -(-n // size)


def round_up(n: int, page_size: int) -> int:
    """`n` tokens in whole pages, not fewer."""
    return ceil_div(n, page_size) * page_size


def round_down(n: int, page_size: int) -> int:
    """`n` tokens in whole pages, not more."""
    return n - n % page_size
