"""Chats as the text that a model reads, by its chat template."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from radixkv.errors import BackendUnavailableError, InvalidArgumentError
from radixkv.lab.logs import fields
from radixkv.lab.logs.fields import FieldError, Row
from radixkv.lab.logs.printable import on_one_line

# Where the tokenizer brings no template: ChatML, tools as a system message.
CHATML = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif -%}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content %}{{ message.content }}{% endif -%}
{% for call in message.tool_calls or [] %}{{ call | tojson }}{% endfor %}<|im_end|>
{% endfor %}<|im_start|>assistant{{ "\n" }}"""


def renderer(template: str) -> Callable[[Row], str]:
    """Turns a row with messages and tools into its prompt; raises FieldError where it cannot.

    Raises InvalidArgumentError for a template that cannot be compiled.
    """
    compiled = _compile(template)

    def render(chat: Row) -> str:
        messages = [_message(at, each) for at, each in enumerate(_list_of(chat, "messages"))]
        # Templates that write today's date get the request's, so that a log reads the same always.
        moment = _moment(chat)
        try:
            text: str = compiled.render(
                messages=messages,
                tools=chat.get("tools"),
                add_generation_prompt=True,
                strftime_now=moment.strftime,
                bos_token="",
                eos_token="",
            )
        except Exception as error:  # a template may raise anything
            problem = f"messages: the chat template says: {on_one_line(str(error))}"
            raise FieldError("messages", problem) from None
        return text

    return render


def find_template(tokenizer: str | Path | None) -> str | None:
    """The chat template beside a tokenizer file, or None. Raises InvalidArgumentError."""
    if tokenizer is None:
        return None
    path = Path(tokenizer)
    folder = path if path.is_dir() else path.parent
    alone, config = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    if alone.is_file():
        return read_template(alone)
    found = _config(config).get("chat_template") if config.is_file() else None
    return found if isinstance(found, str) else None


def read_template(path: Path) -> str:
    """The text of a file. Raises InvalidArgumentError."""
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"chat template {path}: {error}", path=str(path)) from error


def _config(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
        problem = f"it is a {type(found).__name__}"
    except (OSError, ValueError, RecursionError) as error:
        found, problem = None, str(error)
    if not isinstance(found, dict):
        raise InvalidArgumentError(f"{path} must be a JSON object: {problem}", path=str(path))
    return found


def _compile(template: str) -> Any:
    try:
        from jinja2 import TemplateError
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise BackendUnavailableError(
            "chat logs need jinja2: pip install 'radixkv[lab]'", package="jinja2"
        ) from None
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.globals["raise_exception"] = _raise
    environment.filters["tojson"] = _to_json
    try:
        return environment.from_string(template)
    except TemplateError as error:
        raise InvalidArgumentError(f"the chat template cannot be compiled: {error}") from error


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    raise ValueError(message)


def _moment(row: Row) -> datetime:
    path = fields.first_of(row, "ts", "timestamp", "created", "created_at")
    try:
        return datetime.fromtimestamp(fields.seconds(row, path) or 0, UTC)
    except (ValueError, OverflowError, OSError):
        value = fields.find(row, path or "")
        fields.wrong(path or "", value, "seconds since 1970, up to the year 9999")


def _list_of(chat: Row, name: str) -> list[Any]:
    found = chat.get(name)
    return found if isinstance(found, list) and found else fields.wrong(name, found, "messages")


def _message(at: int, message: Any) -> dict[str, Any]:
    where = f"messages[{at}]"
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        fields.wrong(where, message, 'an object with "role" and "content"')
    return {**message, "content": _content(f"{where}.content", message.get("content"))}


def _content(where: str, content: Any) -> str | None:
    if isinstance(content, list):
        return "".join(_part(f"{where}[{at}]", part) for at, part in enumerate(content))
    if content is not None and not isinstance(content, str):
        fields.wrong(where, content, "text or a list of parts")
    return content


def _part(where: str, part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else None
    if not isinstance(text, str):
        fields.wrong(where, part, "a part with text; the lab reads no other content")
    return text
