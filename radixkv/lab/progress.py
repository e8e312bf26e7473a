"""How those who wait are told how far something is."""

from collections.abc import Callable
from typing import TypeAlias

Tell: TypeAlias = Callable[[int], object]  # hears how much of it is done
