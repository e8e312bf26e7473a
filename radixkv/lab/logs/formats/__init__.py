"""The log formats that the lab reads: one file each, and one line each in `FORMATS`."""

from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.formats import (
    anthropic,
    blocks,
    chained_blocks,
    chat,
    dialogues,
    ids,
    lengths,
    responses,
    sized_blocks,
    text,
)
from radixkv.lab.logs.formats.contract import LogFormat
from radixkv.prompts.fields import Row

# The first that recognizes one of a log's first rows is the format of the log.
FORMATS: dict[str, LogFormat] = {
    each.name: each
    for each in (
        sized_blocks.FORMAT,
        chained_blocks.FORMAT,
        blocks.FORMAT,
        anthropic.FORMAT,
        chat.FORMAT,
        responses.FORMAT,
        dialogues.FORMAT,
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


def format_of(rows: list[Row]) -> LogFormat | None:
    """The format of a log with these rows; None if no format recognizes any."""
    return next((each for each in FORMATS.values() if any(map(each.recognizes, rows))), None)
