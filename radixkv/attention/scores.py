"""What becomes of the product of a query and a key."""

import math
from dataclasses import dataclass

from torch import Tensor

from radixkv.arguments import at_least
from radixkv.errors import InvalidArgumentError


@dataclass(frozen=True, eq=False)
class ScoreOptions:
    """How a model scores: one record for all layers that score alike.

    Attributes
    ----------
    scale
        Factor of query times key; head_dim ** -0.5 if None.
    window
        Tokens that a token sees, itself included; all before it if None.
    softcap
        Scores are softcap * tanh(score / softcap); None or 0: they are not.
    sinks
        (q_heads,), floating point: a score for each query head that takes part in the softmax and
        has no value.

    Raises
    ------
    InvalidArgumentError
        For a value out of range.
    """

    scale: float | None = None
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None

    def __post_init__(self) -> None:
        if self.window is not None:
            at_least(1, window=self.window)
        if self.softcap is not None and not 0 <= self.softcap < math.inf:
            raise InvalidArgumentError(
                f"softcap must be 0 (no cap) or a positive number; got {self.softcap}",
                softcap=self.softcap,
            )

    def scale_at(self, head_dim: int) -> float:
        """The scale for heads of `head_dim`.

        Parameters
        ----------
        head_dim
            Size of a head.

        Returns
        -------
        float
            Factor of query times key.
        """
        return head_dim**-0.5 if self.scale is None else self.scale


PLAIN = ScoreOptions()
