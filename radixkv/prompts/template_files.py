"""The chat template and the special tokens next to a tokenizer."""

import json
from pathlib import Path
from typing import Any

from radixkv.errors import InvalidArgumentError
from radixkv.prompts.chat_template import PREPARATIONS, ChatTemplate, check_template

# Where the tokenizer brings no template: ChatML, tools as a system message.
CHATML = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif -%}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content %}{{ message.content }}{% endif -%}
{% for call in message.tool_calls or [] %}{{ call | tojson }}{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{{ "\n" }}{% endif %}"""
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
            "mask_token")  # fmt: skip


def find_template(tokenizer: str | Path | None, own: Path | None, engine: str) -> ChatTemplate:
    """The template in the file `own`, else the one next to the tokenizer, else ChatML.

    Raises InvalidArgumentError for files that cannot be read, and for an unknown engine.
    """
    if engine not in PREPARATIONS:
        raise InvalidArgumentError(
            f"engine must be one of {', '.join(PREPARATIONS)}; got {engine!r}", engine=engine
        )
    path = Path(tokenizer) if tokenizer is not None else None
    folder = None if path is None else path if path.is_dir() else path.parent
    config = _config(folder / "tokenizer_config.json") if folder else {}
    source, tool_template, origin = _found(folder, own, config)
    return ChatTemplate(
        source, tool_template, _special_tokens(config, folder), PREPARATIONS[engine], origin
    )


def _found(
    folder: Path | None, own: Path | None, config: dict[str, Any]
) -> tuple[str, str | None, str]:
    if own is not None:
        source = _text(own)
        check_template(source)
        return source, None, str(own)
    if folder and (folder / "chat_template.jinja").is_file():
        with_tools = folder / "additional_chat_templates" / "tool_use.jinja"
        tool_template = _text(with_tools) if with_tools.is_file() else None
        return _text(folder / "chat_template.jinja"), tool_template, "chat_template.jinja"
    found = config.get("chat_template")
    if isinstance(found, str):
        return found, None, "tokenizer_config.json"
    if isinstance(found, list):
        named = {each["name"]: each["template"] for each in found}
        if "default" in named or len(named) == 1:
            default = named.get("default") or next(iter(named.values()))
            return default, named.get("tool_use"), "tokenizer_config.json"
    return CHATML, None, "ChatML, since no template lies beside the tokenizer"


def _special_tokens(config: dict[str, Any], folder: Path | None) -> dict[str, str]:
    """Texts of the start token and the like, that templates write."""
    kept = _config(folder / "special_tokens_map.json") if folder else {}
    found = {name: {**kept, **config}.get(name) for name in _SPECIAL}
    texts = {name: each.get("content") if isinstance(each, dict) else each
             for name, each in found.items()}  # fmt: skip
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _text(path: Path) -> str:
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"chat template {path}: {error}", path=str(path)) from error
    return text


def _config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
        problem = f"got a {type(found).__name__}"
    except (OSError, ValueError, RecursionError) as error:
        found, problem = None, str(error)
    if not isinstance(found, dict):
        raise InvalidArgumentError(f"{path} must be a JSON object: {problem}", path=str(path))
    return found
