"""Why a step runs as it does."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Choice: TypeAlias = Literal["tree", "flat"]


@dataclass(frozen=True)
class Explanation:
    """What was chosen for a step, and what it rests on; `str()` says it in a line.

    kernels: what computes it: "fa3", "triton", or "cuda" for the tree's own on Hopper (softcap is
    left to Triton even there). flat_us, tree_us: estimates for one layer.
    slots: that the requests see, together; distinct_slots: those without repetition. A tree reads a
    slot once for every item that has it, all but the first time from the card's cache as a rule.
    The numbers are 0 where no plan was made.
    """

    choice: Choice
    reason: str
    kernels: str = ""
    flat_us: float = 0.0
    tree_us: float = 0.0
    slots: int = 0
    distinct_slots: int = 0
    shared_runs: int = 0
    wide_items: int = 0
    narrow_items: int = 0

    def __str__(self) -> str:
        begun = f"{self.choice} by {self.kernels}: {self.reason}"
        if not self.slots:
            return begun
        return (
            f"{begun} (tree {self.tree_us:.0f} us, "
            f"flat {self.flat_us:.0f} us; {self.distinct_slots:,} of {self.slots:,} slots are "
            f"distinct, {self.shared_runs} shared runs, {self.wide_items} wide and "
            f"{self.narrow_items} narrow items)"
        )
