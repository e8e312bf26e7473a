"""Text that a format does not know is refused by name: a prompt without it would be another."""

import re
from collections.abc import Iterable
from typing import Any

from radixkv.lab.logs.answers import FIELDS as ANSWER_FIELDS
from radixkv.prompts.fields import FieldError, Row

# Fewer words, as in a model's name or a date, label a request.
_TEXT = re.compile(r"\S+(\s+\S+){3}")
_LONGEST_LABEL = 200
# What requests and their logs have besides prompts.
_LABELS = frozenset({
    "id", "object", "model", "user", "metadata", "meta", "session", "session_id", "headers",
    "error",
    "usage", "response", "response_format", "text_format", "guided_json", "stop", "stop_sequences",
    "logit_bias", "service_tier", "timings", "sampling_params", "parameters", "meta_info", "tags",
    "tool_choice", "function_call", "stream_options", "extra_body", "generation_config", "url",
    "prediction", "reasoning", "request_id", "custom_id", "cost", "user_agent", "status",
})  # fmt: skip


def refuse_unknown_text(row: Row, known: Iterable[str], ignored: frozenset[str]) -> None:
    """Raises FieldError for a field that holds text and is not `known`, a label, or `ignored`."""
    allowed = _LABELS | ANSWER_FIELDS | ignored | {*known}
    for name, value in row.items():
        if name not in allowed and _holds_text(value):
            raise FieldError(
                name,
                f"{name} holds text that this format does not put into prompts; "
                f"--ignore-field {name} leaves it out",
            )


def _holds_text(value: Any) -> bool:
    """At any depth."""
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, str) and (len(each) > _LONGEST_LABEL or _TEXT.search(each)):
            return True
        inside = each.values() if isinstance(each, dict) else each
        pending += inside if isinstance(each, dict | list) else ()
    return False
