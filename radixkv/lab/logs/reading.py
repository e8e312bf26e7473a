"""Reads a log of any format, tokenizes it once, and keeps the result by what went into it."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from radixkv.arguments import at_least
from radixkv.errors import InvalidArgumentError, InvalidLogError
from radixkv.folders import cache_folder
from radixkv.lab.logs import sources
from radixkv.lab.logs.chat_prompts import ChatPrompts
from radixkv.lab.logs.conversion import Conversion
from radixkv.lab.logs.formats import format_named
from radixkv.lab.logs.formats.contract import Context
from radixkv.lab.logs.labels import Labels
from radixkv.lab.logs.requests import Progress
from radixkv.lab.logs.rows import Rows
from radixkv.lab.logs.store import StoredLog, open_stored
from radixkv.lab.logs.tokenizing import Tokenizer, load_tokenizer
from radixkv.prompts.chat_template import ChatTemplate
from radixkv.prompts.fields import TIME_UNITS
from radixkv.prompts.template_files import find_template

VERSION = 6  # of what is kept; a new one reads every log again


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read a log.

    format: a name of `formats.FORMATS`; None: the format that recognizes the first rows.
    tokenizer, chat_template: files. Text and chats need a tokenizer; chats without a template take
    the one next to the tokenizer, or ChatML. engine: whose preparation of chats, sglang or vllm.
    media_tokens: tokens that stand for a picture, a sound or a file.
    session, namespace: fields, with dots for fields inside fields. length, output_length: columns
    of a log of lengths. time_unit: s, ms, us or ns. ignored: fields whose text is left out.
    encoding: of the file. skip_bad: bad lines are counted and left out, and so is what comes after
    the place where a file is cut.
    """

    format: str | None = None
    tokenizer: str | Path | None = None
    chat_template: Path | None = None
    session: str | None = None
    namespace: str | None = None
    skip_bad: bool = False
    engine: str = "sglang"
    media_tokens: int = 1024
    length: str | None = None
    output_length: str | None = None
    time_unit: str | None = None
    ignored: tuple[str, ...] = ()
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None:
            format_named(self.format)
        at_least(1, media_tokens=self.media_tokens)
        if self.time_unit is not None and self.time_unit not in TIME_UNITS:
            raise InvalidArgumentError(
                f"time_unit must be one of {', '.join(TIME_UNITS)}; got {self.time_unit!r}",
                time_unit=self.time_unit,
            )


def read_log(
    files: str | Path | Sequence[str | Path],
    how: Reading | None = None,
    *,
    progress: Progress | None = None,
) -> StoredLog:
    """The requests of the files, tokenized at the first reading and kept on disk.

    files: one or several, or patterns of them, `-` for standard input; one log in this order.
    progress: receives the bytes that were read so far.
    Raises InvalidLogError with file, line and field, InvalidArgumentError, BackendUnavailableError.
    """
    how = how or Reading()
    tokenizer = load_tokenizer(how.tokenizer) if how.tokenizer is not None else None
    template = find_template(how.tokenizer, how.chat_template, how.engine)
    with sources.opened([files] if isinstance(files, str | Path) else files) as paths:
        folder = kept_logs() / _key(paths, how, tokenizer, template)
        with suppress(InvalidLogError):  # not there yet, or damaged
            return open_stored(folder)
        rows = Rows(paths, skip_bad=how.skip_bad, encoding=how.encoding, progress=progress)
        try:
            return _conversion(how, tokenizer, template).write(rows, folder)
        except OSError as error:
            raise InvalidArgumentError(
                f"{folder.parent} cannot be written: {error.strerror}; RADIXKV_CACHE_DIR names "
                "another",
                path=str(folder.parent),
            ) from error


def _conversion(how: Reading, tokenizer: Tokenizer | None, template: ChatTemplate) -> Conversion:
    context = Context(
        chats=ChatPrompts(template, how.media_tokens),
        length=how.length,
        output_length=how.output_length,
        ignored=frozenset(how.ignored),
        time_unit=how.time_unit,
    )
    return Conversion(
        how.format, Labels(how.session, how.namespace, how.time_unit), context, tokenizer
    )


def kept_logs() -> Path:
    """The folder of tokenized logs."""
    return cache_folder() / "lab"


def _key(
    paths: Sequence[Path], how: Reading, tokenizer: Tokenizer | None, template: ChatTemplate
) -> str:
    """What stands for the files' content and for how they are read."""
    contents = []
    for path in paths:
        with path.open("rb") as file:
            contents.append(hashlib.file_digest(file, "sha256").hexdigest())
    source = hashlib.sha256(tokenizer.source if tokenizer else b"").hexdigest()
    options = {**asdict(how), "tokenizer": None, "chat_template": None}
    whole = json.dumps([VERSION, contents, source, asdict(template), options])
    return hashlib.sha256(whole.encode()).hexdigest()[:32]
