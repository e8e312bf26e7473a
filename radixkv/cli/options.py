"""From functions to commands: their help, and options that several share."""

import inspect
import re
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from typing import Any


def help_of(command: Callable[..., None]) -> str:
    """Its docstring, a line a paragraph, which the terminal wraps."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(command) or "")


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """`command`, with the fields of its dataclass parameters as options in their place."""
    own = inspect.signature(command).parameters
    groups: dict[str, type[Any]] = {
        name: each.annotation
        for name, each in own.items()
        if isinstance(each.annotation, type) and is_dataclass(each.annotation)
    }
    fields = {name: [*inspect.signature(group).parameters] for name, group in groups.items()}

    @wraps(command)
    def expanded(**options: Any) -> None:
        made = {
            name: group(**{field: options.pop(field) for field in fields[name]})
            for name, group in groups.items()
        }
        command(**made, **options)

    shown = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, each in own.items()
        for parameter in (
            inspect.signature(groups[name]).parameters.values() if name in groups else [each]
        )
    ]
    expanded.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return expanded
