"""Sizes in whole pages."""


def round_up(n: int, page_size: int) -> int:
    """`n` tokens in whole pages, not fewer."""
    return -(-n // page_size) * page_size


def round_down(n: int, page_size: int) -> int:
    """`n` tokens in whole pages, not more."""
    return n - n % page_size
