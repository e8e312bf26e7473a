"""Rounding against ourselves: a figure that is shown is never better than the one measured."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal


def at_most(value: float, digits: int) -> str:
    """Rounded up: what the value is not above.

    >>> at_most(0.3144, 2)
    '0.32'
    """
    return _rounded(value, digits, ROUND_CEILING)


def at_least(value: float, digits: int) -> str:
    """Rounded down: what the value is not below.

    >>> at_least(9.46, 1)
    '9.4'
    """
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, how: str) -> str:
    return f"{Decimal(str(value)).quantize(Decimal(1).scaleb(-digits), how):,}"
