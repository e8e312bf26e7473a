"""What a policy is asked, and what it answers."""

from collections.abc import Callable
from typing import NamedTuple

from radixkv.router.arrays import FloatArray, IntArray, Lengths


class Question(NamedTuple):
    """One prompt to place, and the workers that may get it: arrays with an item for each.

    lengths: tokens of the prompt that each holds, as far as the index can be trusted: those of a
    worker that fell silent or behind count less. loads: in any one unit. work: tokens that each
    computed of late, or has been sent to compute. turns: when each was picked last, as a count of
    picks. prompt_length: tokens, more than 0.
    key: what belongs together (a session, a tenant), or the beginning of the prompt; asked for only
    by who needs it.
    """

    workers: tuple[str, ...]
    lengths: Lengths
    loads: FloatArray
    work: FloatArray
    turns: IntArray
    prompt_length: int
    key: Callable[[], bytes]


class Choice(NamedTuple):
    """The position of the worker chosen, and why, for a person."""

    at: int
    reason: str
