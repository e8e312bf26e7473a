"""Text to token ids, many at once on every core."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.errors import BackendUnavailableError, InvalidArgumentError, InvalidLogError
from radixkv.extras import missing
from radixkv.lab.logs.packed import read_packed
from radixkv.prompts.gguf import gguf_file, tokenizer_json


class Tokenizer(Protocol):
    """What the lab needs of a tokenizer."""

    source: bytes  # what makes it this one and no other

    def encode(self, texts: Sequence[str], *, starts: bool = False) -> list[Int32Array]:
        """The token ids of each text; starts: with what the tokenizer adds around a text."""

    def decode(self, token_ids: Int32Array) -> str:
        """The text of some tokens, special ones included."""


class ByteTokenizer:
    """Each byte of the UTF-8 text is a token: for a look at a log without a tokenizer."""

    source = b"bytes"

    def encode(self, texts: Sequence[str], *, starts: bool = False) -> list[Int32Array]:
        return [np.frombuffer(text.encode(), np.uint8).astype(np.int32) for text in texts]

    def decode(self, token_ids: Int32Array) -> str:
        ids = token_ids.tolist()
        if max(ids, default=0) > 255:  # of a log that was never bytes
            return " ".join(map(str, ids))
        return bytes(ids).decode(errors="replace")


class FileTokenizer:
    """The tokenizer of a tokenizer.json, by the `tokenizers` package, which uses every core."""

    def __init__(self, source: bytes, encoder: Any) -> None:
        self.source, self._encoder = source, encoder

    def encode(self, texts: Sequence[str], *, starts: bool = False) -> list[Int32Array]:
        encoded = self._encoder.encode_batch_fast([*texts], add_special_tokens=starts)
        return [np.array(each.ids, np.int32) for each in encoded]

    def decode(self, token_ids: Int32Array) -> str:
        text: str = self._encoder.decode(token_ids.tolist(), skip_special_tokens=False)
        return text


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer in a tokenizer.json (packed or not), in a folder with one or in a GGUF file; or
    "smollm2", the packaged model's; or "bytes".

    Raises InvalidArgumentError for a file that is not a tokenizer, BackendUnavailableError.
    """
    if str(path) == "bytes":
        return ByteTokenizer()
    gguf = gguf_file(path)
    file = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
    try:
        from tokenizers import Tokenizer as Encoder
    except ImportError:
        raise missing("text", "tokenizers", "lab") from None
    try:
        source = tokenizer_json(gguf).encode() if gguf else read_packed(file)
        return FileTokenizer(source, Encoder.from_str(source.decode()))
    except InvalidLogError as error:
        raise InvalidArgumentError(
            "tokenizer must be a tokenizer.json, its folder, a .gguf file, smollm2, or bytes: "
            f"{error}",
            path=str(file),
        ) from error
    except BackendUnavailableError:
        raise
    except Exception as error:  # the package raises nothing narrower
        raise InvalidArgumentError(
            f"tokenizer {file} is not a tokenizer.json: {error}", path=str(file)
        ) from error
