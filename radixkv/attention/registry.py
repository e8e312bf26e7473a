"""Attention backends by name, each loaded when it is first asked for."""

import os
from collections.abc import Callable
from typing import Any

from radixkv.attention.base import AttentionBackend
from radixkv.errors import BackendUnavailableError, InvalidArgumentError
from radixkv.memory.kv_pool import MHATokenToKVPool

BackendLoader = Callable[[], Callable[..., AttentionBackend]]


def register_backend(name: str, load: BackendLoader) -> None:
    """Make `name` known to `get_backend`, in place of what had that name.

    load: gives the backend's class; it imports what the backend needs and may raise ImportError, or
    BackendUnavailableError where a device is missing.
    """
    _LOADERS[name] = load


def get_backend(name: str, pool: MHATokenToKVPool, **options: Any) -> AttentionBackend:
    """A new backend over `pool`; `options` are those of its class.

    Raises InvalidArgumentError for a name nobody registered and BackendUnavailableError where what
    the backend needs is missing.
    """
    if name not in _LOADERS:
        raise InvalidArgumentError(
            f"attention backend is {name!r}; it takes one of {', '.join(sorted(_LOADERS))}",
            backend=name,
        )
    return _load(name)(pool, **options)


def backend_status() -> dict[str, str | None]:
    """Every backend's name, with None if it works here and the reason if it does not."""
    return {name: _reason(name) for name in sorted(_LOADERS)}


def _load(name: str) -> Callable[..., AttentionBackend]:
    try:
        return _LOADERS[name]()
    except ImportError as error:
        raise BackendUnavailableError(
            f"attention backend {name!r} needs the package {error.name!r}, which is not installed",
            backend=name,
            package=error.name,
        ) from error


def _reason(name: str) -> str | None:
    try:
        _load(name)
    except BackendUnavailableError as error:
        return str(error)
    return None


def _reference() -> type[AttentionBackend]:
    from radixkv.attention.reference import ReferenceAttention

    return ReferenceAttention


def _check_device(name: str) -> None:
    """Before anything is imported that is of no use without one: a missing package is no reason."""
    # Imported here: who registers a backend of another kind need not have torch.
    import torch

    if not torch.cuda.is_available() and not os.environ.get("TRITON_INTERPRET"):
        raise BackendUnavailableError(
            f"attention backend {name!r} needs a CUDA device, and torch sees none here; "
            "'reference' works on any device",
            backend=name,
        )


def _fa3() -> type[AttentionBackend]:
    _check_device("fa3")
    from radixkv.attention.fa3 import FA3Attention, check_card

    check_card()
    return FA3Attention


def _triton() -> type[AttentionBackend]:
    _check_device("triton")
    from radixkv.attention.paged import TritonAttention

    return TritonAttention


def _tree() -> type[AttentionBackend]:
    _check_device("tree")
    from radixkv.attention.tree.backend import TreeAttention

    return TreeAttention


_LOADERS: dict[str, BackendLoader] = {
    "fa3": _fa3,
    "reference": _reference,
    "tree": _tree,
    "triton": _triton,
}
