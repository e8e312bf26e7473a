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
        return open(
            0 if path is None else path,
            encoding="utf-8-sig",
            errors="surrogateescape",  # `parse` tells which line is no text
            closefd=path is not None,
        )
    except OSError as error:
        source = "standard input" if path is None else f"--prompts {path}"
        raise InvalidArgumentError(f"{source}: {error.strerror}") from error


def feed(inbox: Inbox, lines: IO[str]) -> None:
    """Begin to read prompts into `inbox`; returns at once."""
    Thread(target=_read, args=(lines, inbox), name="radixkv-prompts", daemon=True).start()


def _read(lines: IO[str], inbox: Inbox) -> None:
    try:
        with lines:
            for prompt in enumerate(parse(lines), start=1):
                inbox.put(prompt)
    finally:
        inbox.put(None)


def parse(lines: IO[str]) -> Iterator[str]:
    """The prompts in lines of text or of JSON objects with "prompt"; what is neither is told."""
    for at, line in enumerate(lines, start=1):
        text = line.strip()
        if not text.startswith("{"):
            prompt = text
        else:
            prompt = _prompt_of_json(text)
            if not prompt:
                print(f'radixkv: line {at} is no JSON object with a "prompt"', file=sys.stderr)
        if not _is_text(prompt):
            print(f"radixkv: line {at} is no UTF-8 text", file=sys.stderr)
        elif prompt:
            yield prompt


def _is_text(prompt: str) -> bool:
    """Whether it can be encoded: half a surrogate pair, from a bad byte or from JSON, cannot."""
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
