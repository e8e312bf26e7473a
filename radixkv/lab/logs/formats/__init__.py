"""The log formats that the lab reads: one file each, and one line each in `FORMATS`."""

from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.fields import Row
from radixkv.lab.logs.formats import blocks, chat, ids, lengths, sized_blocks, text
from radixkv.lab.logs.formats.contract import LogFormat

# The first that recognizes a row is the format of its log.
FORMATS: dict[str, LogFormat] = {
    each.name: each
    for each in (
        sized_blocks.FORMAT,
        blocks.FORMAT,
        chat.FORMAT,
        ids.FORMAT,
        text.FORMAT,
        lengths.FORMAT,
    )
}


def format_named(name: str) -> LogFormat:
    """The format of that name. Raises InvalidArgumentError."""
    if name not in FORMATS:
        raise InvalidArgumentError(
            f"format must be one of {', '.join(FORMATS)}; got {name!r}", format=name
        )
    return FORMATS[name]


def format_of(row: Row) -> LogFormat | None:
    """The format of a log with this row; None if no format recognizes it."""
    return next((each for each in FORMATS.values() if each.recognizes(row)), None)
