"""Attention backends by name, each loaded when it is first asked for."""

import os
from collections.abc import Callable
from typing import Any

from radixkv.attention.base import AttentionBackend
from radixkv.errors import BackendUnavailableError, InvalidArgumentError
from radixkv.memory.kv_pool import TokenToKVPool

BackendLoader = Callable[[], Callable[..., AttentionBackend]]


def register_backend(name: str, load: BackendLoader) -> None:
    """Make `name` known to `get_backend`, in place of what had that name.

    Parameters
    ----------
    name
        What `get_backend` will know it by.
    load
        Returns what makes the backend from a pool and options. It imports what the backend needs:
        an ImportError, or a BackendUnavailableError where a device is missing, is the reason in
        `backend_status`.
    """
    _LOADERS[name] = load


def get_backend(name: str, pool: TokenToKVPool, **options: Any) -> AttentionBackend:
    """A new backend over `pool`; `options` are those of what makes it.

    Parameters
    ----------
    name
        A registered name: "reference", "tree", "fa3", "triton" or one of your own.
    pool
        The K/V pool.
    **options
        Those of what makes the backend.

    Returns
    -------
    AttentionBackend
        For one step at a time.

    Raises
    ------
    InvalidArgumentError
        For a name that is not registered.
    BackendUnavailableError
        Where what the backend needs is missing.
    """
    if name not in _LOADERS:
        raise InvalidArgumentError(
            f"the attention backend must be one of {', '.join(sorted(_LOADERS))}; got {name!r}",
            backend=name,
        )
    return _load(name)(pool, **options)


def backend_status() -> dict[str, str | None]:
    """Every backend's name, with None if it works here and the reason if it does not.

    Returns
    -------
    dict[str, str | None]
        The reason by name; None: it works here.
    """
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
    """Before anything is imported that needs one: a missing package is not the first reason."""
    # Imported here: a backend of another kind may be registered where torch is not installed.
    import torch

    if not torch.cuda.is_available() and not os.environ.get("TRITON_INTERPRET"):
        raise BackendUnavailableError(
            f"attention backend {name!r} needs a CUDA device, and torch sees none here; "
            "'reference' works on any device",
            backend=name,
        )


def _fa3() -> Callable[..., AttentionBackend]:
    _check_device("fa3")
    from radixkv.attention.fa3 import check_card, fa3_attention

    check_card()
    return fa3_attention


def _flashmla() -> Callable[..., AttentionBackend]:
    _check_device("flashmla")
    from radixkv.attention.fa3 import check_card
    from radixkv.attention.flashmla import check_library, flashmla_attention

    check_card()
    check_library()
    return flashmla_attention


def _triton() -> Callable[..., AttentionBackend]:
    _check_device("triton")
    from radixkv.attention.triton import triton_attention

    return triton_attention


def _tree() -> Callable[..., AttentionBackend]:
    _check_device("tree")
    from radixkv.attention.shared_prefix.backend import tree_attention

    return tree_attention


_LOADERS: dict[str, BackendLoader] = {
    "fa3": _fa3,
    "flashmla": _flashmla,
    "reference": _reference,
    "tree": _tree,
    "triton": _triton,
}
