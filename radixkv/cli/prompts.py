"""Prompts for `radixkv serve`, read line by line next to the engine that answers them."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, TypeAlias

from radixkv.errors import InvalidArgumentError

# A prompt and its number, an error of a line, or None: the end.
Inbox: TypeAlias = "SimpleQueue[tuple[int, str] | InvalidArgumentError | None]"


def open_prompts(path: Path | None) -> IO[str]:
    """The file, or standard input; raises InvalidArgumentError if it cannot be read."""
    try:
        # Standard input by its number: an interpreter that exits waits for readers of sys.stdin.
        return open(
            0 if path is None else path,
            encoding="utf-8-sig",
            errors="surrogateescape",  # `parse` reports the line that is not text
            closefd=path is not None,
        )
    except OSError as error:
        source = "standard input" if path is None else f"--prompts {path}"
        raise InvalidArgumentError(f"{source}: {error.strerror}") from error


def feed(inbox: Inbox, lines: IO[str]) -> None:
    """Start to read prompts into `inbox`; returns at once."""
    Thread(target=_read, args=(lines, inbox), name="radixkv-prompts", daemon=True).start()


def _read(lines: IO[str], inbox: Inbox) -> None:
    try:
        with lines:
            numbers = count(1)
            for prompt in parse(lines):
                inbox.put((next(numbers), prompt) if isinstance(prompt, str) else prompt)
    finally:
        inbox.put(None)


def parse(lines: IO[str]) -> Iterator[str | InvalidArgumentError]:
    """The prompts in lines of text or of JSON objects with "prompt", or the error of a line."""
    for at, line in enumerate(lines, start=1):
        text = line.strip()
        prompt = _prompt_of_json(text) if text.startswith("{") else text
        if text and not prompt:
            yield InvalidArgumentError(
                f'line {at} must be a JSON object with a "prompt"; got other text', line=at
            )
        elif not _is_text(prompt):
            yield InvalidArgumentError(f"line {at} must be UTF-8 text; got other bytes", line=at)
        elif prompt:
            yield prompt


def _is_text(prompt: str) -> bool:
    """Whether it can be encoded. A lone surrogate, from a bad byte or from JSON, cannot."""
    try:
        prompt.encode()
    except UnicodeEncodeError:
        return False
    return True


def _prompt_of_json(text: str) -> str:
    try:
        prompt = json.loads(text)["prompt"]
    except (ValueError, KeyError, RecursionError):
        return ""
    return prompt if isinstance(prompt, str) else ""
