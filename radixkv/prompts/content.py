"""The content of messages: text, and media as spans of tokens that stand for their bytes."""

import hashlib
import json
import re
from typing import Any, TypeAlias

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.prompts import fields

Part: TypeAlias = dict[str, Any]
_TEXTS = ("text", "input_text", "output_text", "refusal")
_KINDS = {"image_url": "image", "input_image": "image", "image": "image", "video_url": "video",
          "video": "video", "input_audio": "audio", "audio_url": "audio", "audio": "audio",
          "file": "file", "input_file": "file", "document": "file"}  # fmt: skip
# A mark in rendered text, where a span of tokens belongs; private characters that no text has.
_MARK = re.compile("\ue8a0([0-9a-f]{16})\ue8a1")


def parts_of(where: str, content: Any) -> list[Part] | str:
    """Content with parts of type text, image, video, audio or file alone, media with their mark.

    Raises FieldError.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        fields.wrong(where, content, "text or a list of parts")
    return [part for at, each in enumerate(content) for part in _parts(f"{where}[{at}]", each)]


def _parts(where: str, part: Any) -> list[Part]:
    if isinstance(part, str):
        return [{"type": "text", "text": part}]
    if not isinstance(part, dict):
        fields.wrong(where, part, "text or an object with a type")
    kind = part.get("type", "text")
    if isinstance(kind, str) and kind in _KINDS:
        return [{"type": _KINDS[kind]}, {"type": "text", "text": mark(part)}]
    if kind not in _TEXTS:
        fields.wrong(f"{where}.type", kind, f"one of {', '.join([*_TEXTS, *_KINDS])}")
    text = part.get("text", part.get(kind))
    if not isinstance(text, str):
        fields.wrong(f"{where}.text", text, "text")
    return [{"type": "text", "text": text}]


def mark(media: Any) -> str:
    """What stands in text for a picture, a sound or a file: equal for equal bytes."""
    whole = json.dumps(media, sort_keys=True).encode("utf-8", "surrogatepass")
    return f"\ue8a0{hashlib.sha256(whole).hexdigest()[:16]}\ue8a1"


def as_text(parts: list[Part] | str, separator: str) -> str:
    """The text of all parts, for templates that take text alone."""
    if isinstance(parts, str):
        return parts
    return separator.join(part["text"] for part in parts if part["type"] == "text")


def split_at_marks(text: str) -> list[str]:
    """Texts and, between them, the hashes of media: one, three, five ... strings."""
    return _MARK.split(text)


def span(hashed: str, length: int) -> Int32Array:
    """Tokens that stand for media of this hash, as engines pad it: no tokenizer has their ids."""
    return np.full(length, 2**30 + int(hashed, 16) % 2**30, np.int32)
