"""Prompts for `radixkv serve`, read line by line beside the engine that answers them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, TypeAlias

from radixkv.errors import InvalidArgumentError

# A prompt and its number, or None: nothing more will come.
Inbox: TypeAlias = "SimpleQueue[tuple[int, str] | None]"


def open_prompts(path: Path | None) -> IO[str]:
    """The file, or standard input; raises InvalidArgumentError if it cannot be read."""
    try:
        # Standard input by its number: an interpreter that exits waits for whoever reads sys.stdin.
        source: int | Path = 0 if path is None else path
        # What is no UTF-8 comes through as surrogates: one bad line must not end the reading.
        return open(source, encoding="utf-8", errors="surrogateescape", closefd=path is not None)
    except OSError as error:
        raise InvalidArgumentError(f"--prompts {path}: {error.strerror}") from error


def feed(inbox: Inbox, lines: IO[str]) -> None:
    """Begin to read prompts into `inbox`; returns at once."""
    Thread(target=_read, args=(lines, inbox), name="radixkv-prompts", daemon=True).start()


def _read(lines: IO[str], inbox: Inbox) -> None:
    with lines:
        for prompt in enumerate(parse(lines), start=1):
            inbox.put(prompt)
    inbox.put(None)


def parse(lines: IO[str]) -> Iterator[str]:
    """The prompts in lines of text or of JSON objects with "prompt"; what is neither is told."""
    for at, line in enumerate(lines, start=1):
        text = line.strip()
        prompt = _prompt_of_json(text) if text.startswith("{") else text
        if not _is_unicode(prompt):
            print(f"radixkv: line {at} is no Unicode text", file=sys.stderr)
        elif prompt:
            yield prompt
        elif text:
            print(f'radixkv: line {at} is no JSON object with a "prompt"', file=sys.stderr)


def _is_unicode(text: str) -> bool:
    """Whether it has no lone surrogates, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _prompt_of_json(text: str) -> str:
    try:
        prompt = json.loads(text)["prompt"]
    except (ValueError, KeyError):
        return ""
    return prompt if isinstance(prompt, str) else ""
