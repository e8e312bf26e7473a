"""What a log format is: how one of its rows is recognised, and how it becomes requests."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from radixkv.lab.logs.chat_prompts import ChatPrompts
from radixkv.lab.logs.records import Record
from radixkv.prompts.fields import Row


@dataclass(frozen=True, slots=True)
class Context:
    """What formats need besides a row.

    chats: turns chats into prompts. length, output_length: columns that `lengths` takes, None: the
    usual names. ignored: fields whose text is left out of prompts. time_unit: of
    `fields.TIME_UNITS`, None: as the format has it. block_size: of the log's layout.
    """

    chats: ChatPrompts
    length: str | None = None
    output_length: str | None = None
    ignored: frozenset[str] = field(default_factory=frozenset)
    time_unit: str | None = None
    block_size: int = 1


Parse: TypeAlias = Callable[[Row], Iterable[Record]]


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
    parser: makes the function that turns a row into requests (a row may hold several, or none).
    The function raises FieldError for a row that it cannot read.
    layout: receives the first rows and says how many tokens a value stands for; raises FieldError.
    is_text: whether the rows need a tokenizer. has_contents: whether prompts can be compared; a log
    of lengths alone has no hit rate.
    """

    name: str
    fields: tuple[str, ...]
    recognizes: Callable[[Row], bool]
    parser: Callable[[Context], Parse]
    layout: Callable[[list[Row]], BlockLayout] = lambda _: BlockLayout()
    is_text: bool = False
    has_contents: bool = True
