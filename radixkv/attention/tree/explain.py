"""Why a step runs as it does."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Choice: TypeAlias = Literal["tree", "flat"]


@dataclass(frozen=True)
class Explanation:
    """What was chosen for a step, and what it rests on; `str()` says it in a line.

    flat_us, tree_us: estimates for one layer. slots: that the requests see, together;
    distinct_slots: those without repetition, which a tree reads once for every wide item that has
    them, and the card's cache mostly once. The numbers are 0 where no plan was made.
    """

    choice: Choice
    reason: str
    flat_us: float = 0.0
    tree_us: float = 0.0
    slots: int = 0
    distinct_slots: int = 0
    shared_runs: int = 0
    wide_items: int = 0
    narrow_items: int = 0

    def __str__(self) -> str:
        if not self.slots:
            return f"{self.choice}: {self.reason}"
        return (
            f"{self.choice}: {self.reason} (tree {self.tree_us:.0f} us, "
            f"flat {self.flat_us:.0f} us; {self.distinct_slots:,} of {self.slots:,} slots are "
            f"distinct, {self.shared_runs} shared runs, {self.wide_items} wide and "
            f"{self.narrow_items} narrow items)"
        )
