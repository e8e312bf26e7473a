"""Reads a log of any format, tokenizes it once, and keeps the result by what went into it."""

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from radixkv.errors import InvalidArgumentError, InvalidLogError
from radixkv.lab.logs.chat_template import CHATML, find_template, read_template, renderer
from radixkv.lab.logs.conversion import Conversion
from radixkv.lab.logs.formats import format_named
from radixkv.lab.logs.labels import LabelFields
from radixkv.lab.logs.requests import Progress
from radixkv.lab.logs.rows import Rows
from radixkv.lab.logs.store import StoredLog, open_stored
from radixkv.lab.logs.tokenizing import Tokenizer, load_tokenizer

VERSION = 4  # of what is kept; a new one reads every log again


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read a log.

    format: a name of `formats.FORMATS`; None: the format that recognizes the first rows.
    tokenizer, chat_template: files. Text and chats need a tokenizer; chats without a template take
    the one beside the tokenizer, or ChatML.
    session, namespace: fields, with dots for fields inside fields. skip_bad: bad lines are counted
    and left out, and so is what comes after the place where a file is cut.
    """

    format: str | None = None
    tokenizer: str | Path | None = None
    chat_template: Path | None = None
    session: str | None = None
    namespace: str | None = None
    skip_bad: bool = False

    def __post_init__(self) -> None:
        if self.format is not None:
            format_named(self.format)


def read_log(
    path: str | Path, how: Reading | None = None, *, progress: Progress | None = None
) -> StoredLog:
    """The requests of the file at `path`, tokenized at the first reading and kept on disk.

    progress: receives the bytes of the file that were read so far.
    Raises InvalidLogError with file, line and field, InvalidArgumentError, BackendUnavailableError.
    """
    path, how = Path(path), how or Reading()
    if not path.is_file():
        raise InvalidLogError(f"{path} is not a file", path=str(path))
    tokenizer = load_tokenizer(how.tokenizer) if how.tokenizer is not None else None
    template = _template(how)
    folder = cache_folder() / _key(path, how, tokenizer, template)
    with suppress(InvalidLogError):  # not there yet, or damaged
        return open_stored(folder)
    labels = LabelFields(how.session, how.namespace)
    conversion = Conversion(how.format, labels, renderer(template), tokenizer)
    try:
        return conversion.write(Rows(path, skip_bad=how.skip_bad, progress=progress), folder)
    except OSError as error:
        raise InvalidArgumentError(
            f"{folder.parent} cannot be written: {error.strerror}; RADIXKV_CACHE_DIR names another",
            path=str(folder.parent),
        ) from error


def cache_folder() -> Path:
    """Where tokenized logs are kept: RADIXKV_CACHE_DIR, else radixkv in XDG_CACHE_HOME."""
    if named := os.environ.get("RADIXKV_CACHE_DIR"):
        return Path(named) / "lab"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "radixkv" / "lab"


def _key(path: Path, how: Reading, tokenizer: Tokenizer | None, template: str) -> str:
    """What stands for the file's content and for how it is read."""
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    source = hashlib.sha256(tokenizer.source if tokenizer else b"").hexdigest()
    options = [how.format, how.session, how.namespace, how.skip_bad]
    whole = json.dumps([VERSION, content, source, template, options])
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def _template(how: Reading) -> str:
    if how.chat_template is not None:
        return read_template(how.chat_template)
    return find_template(how.tokenizer) or CHATML
