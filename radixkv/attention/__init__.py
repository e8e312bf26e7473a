"""Attention over the KV pool: one interface, several backends, chosen by name."""

from radixkv.attention.base import AttentionBackend, AttentionBatch
from radixkv.attention.registry import backend_status, get_backend, register_backend
from radixkv.attention.scores import ScoreOptions

__all__ = [
    "AttentionBackend",
    "AttentionBatch",
    "ScoreOptions",
    "backend_status",
    "get_backend",
    "register_backend",
]
