"""transformers' masks, which radixkv does not make: the batch says what a token sees.

A mask that is causal, or causal within a window, is None here. The attention of each layer gets
the window again, as an argument; `Masks` says whether the two agree.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor
from transformers.masking_utils import (
    causal_mask_function,
    sliding_window_causal_mask_function,
    sliding_window_overlay,
)

from radixkv.errors import InvalidArgumentError
from radixkv.integrations.transformers.refusals import refuse_calls_of_others

# The windows of the masks that were asked for; None: a mask without a window.
_asked_for: ContextVar[set[int | None] | None] = ContextVar("asked_for", default=None)


def no_mask(*, mask_function: Any, attention_mask: Tensor | None = None, **sizes: Any) -> None:
    """transformers' mask function."""
    refuse_calls_of_others()
    if attention_mask is not None:
        raise InvalidArgumentError("attention_mask must be None: a packed batch has no mask")
    window = None if mask_function is causal_mask_function else _window_of(mask_function)
    windows = _asked_for.get()
    if windows is not None:
        windows.add(window)


@contextmanager
def asked_for() -> Iterator[set[int | None]]:
    """The windows of the masks that a model asks for meanwhile; None: a mask without one."""
    windows: set[int | None] = set()
    token = _asked_for.set(windows)
    try:
        yield windows
    finally:
        _asked_for.reset(token)


def _window_of(mask_function: Callable[..., Any]) -> int:
    """How many tokens a token sees, itself included; raises for any other mask than that."""
    if getattr(mask_function, "__code__", None) is sliding_window_causal_mask_function(1).__code__:
        (parts,) = (cell.cell_contents for cell in mask_function.__closure__ or ())
        if len(parts) == 2 and parts[1] is causal_mask_function:
            overlay = parts[0]
            if getattr(overlay, "__code__", None) is sliding_window_overlay(1).__code__:
                (window,) = (cell.cell_contents for cell in overlay.__closure__)
                return int(window)
    raise InvalidArgumentError(
        "the model's mask must be causal, with or without a sliding window; got another (chunks, "
        "blocks, both directions)"
    )


def check_windows(config: Any, asked: set[int | None], attended: list[int | None]) -> None:
    """Raises unless each layer attends in the window of its mask.

    asked: of the masks that the model asked for. attended: what each layer's attention was told.
    """
    kinds = getattr(config, "layer_types", None) or []
    window = getattr(config, "sliding_window", None)
    of_kind = {"full_attention": None, "sliding_attention": window}
    if kinds and all(kind in of_kind for kind in kinds):
        agrees = attended == [of_kind[kind] for kind in kinds] and set(attended) <= asked
    else:
        agrees = set(attended) == asked
    if not agrees:
        raise InvalidArgumentError(
            "the model must give its attention the window of its mask in each layer; got masks of "
            f"{_shown(asked)} and layers of {attended}"
        )


def _shown(windows: set[int | None]) -> list[int | None]:
    return sorted(windows, key=lambda window: window or 0)
