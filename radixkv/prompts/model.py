"""The prompts of one model: from text and messages to token ids, as an engine makes them."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.errors import BackendUnavailableError, InvalidArgumentError
from radixkv.extras import missing
from radixkv.prompts import content, fields
from radixkv.prompts.fields import FieldError
from radixkv.prompts.openai import chat_of
from radixkv.prompts.template_files import CHATML, find_template
from radixkv.tree import ContentSpan

_SMALLEST_CHAT = '{"messages": [{"role": "user", "content": "a"}]}'


class TokenizedPrompt(NamedTuple):
    """token_ids: (n,) int32. content: spans of what is not text (images, sounds)."""

    token_ids: Int32Array
    content: tuple[ContentSpan, ...] = ()


class ModelPrompts:
    """Tokenizes text and chats by the tokenizer and the chat template in a model's folder.

    Parameters
    ----------
    folder
        Has tokenizer.json and, for chats, a template.
    engine
        "sglang" or "vllm", whose way of preparing a chat is followed. Thread-safe. Needs neither
        torch nor the model's weights.

    Raises
    ------
    InvalidArgumentError
        For files that cannot be read.
    BackendUnavailableError
        Where a package or a device is missing.
    """

    def __init__(self, folder: str | Path, engine: str = "sglang") -> None:
        self._encoder = _encoder_of(Path(folder) / "tokenizer.json")
        self._template = find_template(folder, None, engine)
        self._folder = folder
        # The first chat would wait for seconds, while the renderer is imported.
        with suppress(InvalidArgumentError, BackendUnavailableError):
            self.of_chat(_SMALLEST_CHAT)

    def of_text(self, text: str) -> TokenizedPrompt:
        """The prompt of a completion.

        Parameters
        ----------
        text
            Not empty.

        Returns
        -------
        TokenizedPrompt
            Its token ids, (n,) int32.

        Raises
        ------
        InvalidArgumentError
            For text that is empty.
        """
        if not text:
            raise InvalidArgumentError("text must have one character or more; got none")
        return TokenizedPrompt(self._encode(text, starts=True))

    def of_chat(self, body: str | bytes) -> TokenizedPrompt:
        """The prompt of a chat completion, from the JSON of its request.

        `messages`, `tools`, `tool_choice`, `chat_template_kwargs` and `documents` are read. An
        image or a sound is one token of content: only an engine knows how many it takes there.

        Parameters
        ----------
        body
            JSON of a chat completion request.

        Returns
        -------
        TokenizedPrompt
            Its token ids, (n,) int32, and spans of content.

        Raises
        ------
        InvalidArgumentError
            For another body, or where the model has no template.
        """
        if self._template.source is CHATML:
            raise InvalidArgumentError(
                f"a model must have a chat template for messages; {self._folder} has none"
            )
        try:
            rendered = self._template.prompt(chat_of(_object_of(body), time.time()))
            return self._tokenized(fields.encodable("messages", rendered))
        except FieldError as error:
            raise InvalidArgumentError(error.problem, field=error.field) from None

    def _tokenized(self, rendered: str) -> TokenizedPrompt:
        pieces = content.split_at_marks(rendered)
        parts: list[Int32Array] = []
        spans: list[ContentSpan] = []
        for at, piece in enumerate(pieces):
            if at % 2:
                spans.append(ContentSpan(sum(map(len, parts)), 1, bytes.fromhex(piece)))
                parts.append(np.zeros(1, np.int32))
            else:
                # The template writes the start token where there is one.
                parts.append(self._encode(piece, starts=False))
        return TokenizedPrompt(np.concatenate(parts), tuple(spans))

    def _encode(self, text: str, *, starts: bool) -> Int32Array:
        return np.array(self._encoder.encode(text, add_special_tokens=starts).ids, np.int32)


def _encoder_of(file: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise missing("text", "tokenizers", "lab") from None
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises nothing narrower
        raise InvalidArgumentError(
            f"a model must be a folder with a tokenizer.json; got {file}: {error}", path=str(file)
        ) from error


def _object_of(body: str | bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidArgumentError("chat must be the JSON object of a chat completion request")
    return found
