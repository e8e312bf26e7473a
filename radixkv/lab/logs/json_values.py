"""JSON values that are not one a line: an array, or objects over several lines."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from radixkv.prompts.fields import FieldError, Row

_PIECE = 2**20  # characters that are added at a time
_LISTS = ("data", "requests", "items", "rows", "entries", "logs", "records", "examples", "traces")
_OF_REQUESTS = ("prompt", "messages", "input", "hash_ids", "conversations", "token_ids",
                "input_ids", "prompt_token_ids", "body", "request")  # fmt: skip
# The number of a line and its size in bytes; a row of it, or why it was left out.
Read: TypeAlias = tuple[int, int, Row | FieldError]


def values_of(lines: Iterable[tuple[int, bytes]]) -> Iterator[Read]:
    """Line number, size and object of each object, or why it was left out.

    Of an array its elements.
    """
    text = _Text(lines)
    if text.next_character() == "[":
        text.skip(1)
    while (character := text.next_character()) not in ("", "]"):
        if character == ",":
            text.skip(1)
            continue
        line = text.line
        try:
            value, size = text.value()
        except (ValueError, RecursionError) as error:
            yield line, 0, not_an_object(error)
            return
        yield from ((line, size, each) for each in objects_in(value))


def not_an_object(error: Exception) -> FieldError:
    """What is reported of text that cannot be parsed."""
    problem = "it is not a JSON object"
    return FieldError("", f"{problem}: {error}", problem)


def objects_in(value: Any) -> Iterator[Row | FieldError]:
    """The object, or the ones that it is a list of under a common name, as files of tools are.

    Such as {"data": [...]}, the payloads of AIPerf's inputs and the requests of GuideLLM's reports.
    """
    if not isinstance(value, dict):
        problem = "it must be a JSON object"
        yield FieldError("", f"{problem}; got a {type(value).__name__}", problem)
    elif isinstance(value.get("payloads"), list):
        yield from _payloads_of_aiperf(value["payloads"], value.get("session_id"))
    elif isinstance(lengths := value.get("input_lens"), list):
        # What the benchmarks of vLLM and SGLang keep of their requests.
        outputs = value.get("output_lens") or [0] * len(lengths)
        for one, other in zip(lengths, outputs, strict=False):
            yield {"input_len": one, "output_len": other}
    elif found := _list_in(value):
        for each in found:
            yield from objects_in(each)
    else:
        yield value


def _payloads_of_aiperf(payloads: list[Any], session: Any) -> Iterator[Row | FieldError]:
    """Of one session; turns that do not repeat those before were sent with them, and with answers
    that the file does not have.
    """
    before: list[Any] = []
    for each in payloads:
        messages = each.get("messages") if isinstance(each, dict) else None
        if isinstance(messages, list):
            if messages[: len(before)] != before:
                problem = (
                    "its later turns come without the ones before and their answers; AIPerf's "
                    "--export-level raw writes what was sent (profile_export_raw.jsonl)"
                )
                yield FieldError("payloads", problem, problem)
                return
            before = messages
        yield from objects_in({"session_id": session, **each} if isinstance(each, dict) else each)


def _list_in(value: Row) -> list[Any]:
    """The list of objects that an object is about; empty where it is a request itself."""
    if any(name in value for name in _OF_REQUESTS):
        return []
    lists = [value[name] for name in _LISTS if isinstance(value.get(name), list)]
    found = [each for each in (*lists, _requests_of_guidellm(value)) if each]
    return found[0] if len(found) == 1 else []


def _requests_of_guidellm(value: Row) -> list[Any]:
    """Those of the benchmarks in one of its reports that were answered."""
    found = value.get("benchmarks")
    benchmarks = found if isinstance(found, list) else []
    requests = (each.get("requests") for each in benchmarks if isinstance(each, dict))
    return [
        request
        for each in requests
        if isinstance(each, dict)
        for request in each.get("successful") or []
    ]


class _Text:
    """The text of lines, as much of it as is needed at a time."""

    def __init__(self, lines: Iterable[tuple[int, bytes]]) -> None:
        self._lines = iter(lines)
        self._text, self._at = "", 0
        self._ends: list[tuple[int, int]] = []  # where lines end in the text, and their numbers
        self._decoder = json.JSONDecoder()

    @property
    def line(self) -> int:
        """The number of the line that the next character stands in."""
        return next((line for end, line in self._ends if end > self._at), 0)

    def next_character(self) -> str:
        """The next one that is not white space; empty at the end."""
        while True:
            rest = self._text[self._at :]
            stripped = rest.lstrip()
            self._at += len(rest) - len(stripped)
            if stripped or not self._more():
                return stripped[:1]

    def skip(self, characters: int) -> None:
        self._at += characters

    def value(self) -> tuple[Any, int]:
        """The JSON value here and its size. Raises ValueError."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except ValueError:
                if not self._more():
                    raise
                continue
            size, self._at = end - self._at, end
            return value, size

    def _more(self) -> bool:
        """Add lines, and drop what was read; False at the end."""
        pieces, size = [], 0
        kept = self._text[self._at :]
        self._ends = [(end - self._at, line) for end, line in self._ends if end > self._at]
        for line, text in self._lines:
            pieces.append(text.decode(errors="surrogateescape"))
            size += len(pieces[-1])
            self._ends.append((len(kept) + size, line))
            if size >= max(_PIECE, len(kept)):
                break
        self._text, self._at = kept + "".join(pieces), 0
        return bool(pieces)
