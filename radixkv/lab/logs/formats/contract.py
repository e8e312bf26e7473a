"""What a log format is: how one of its rows is recognised, and how it becomes a request."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from radixkv.lab.logs.fields import Row
from radixkv.lab.logs.records import Record

Parse: TypeAlias = Callable[[Row], Record]
Render: TypeAlias = Callable[[Row], str]


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """How many tokens one stored value stands for.

    pads_last_block: whether the last block of a prompt takes the room of a whole block, as it does
    in a cache of blocks.
    """

    size: int = 1
    pads_last_block: bool = False


@dataclass(frozen=True, slots=True)
class LogFormat:
    """One format of `formats.FORMATS`.

    name: as `--format` takes it. fields: what its rows are known by, for error texts.
    recognizes: whether a row looks like one of this format.
    parser: makes the function that turns a row into a record; it receives the renderer of chats.
    The function raises FieldError for a row that it cannot read.
    layout: receives the first row and says how many tokens a value stands for.
    is_text: whether the rows need a tokenizer.
    """

    name: str
    fields: tuple[str, ...]
    recognizes: Callable[[Row], bool]
    parser: Callable[[Render], Parse]
    layout: Callable[[Row], BlockLayout] = lambda _: BlockLayout()
    is_text: bool = False
