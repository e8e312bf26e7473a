"""Names of blocks, as the engines make them: a chain of SHA-256, published in 64 bits.

A name stands for all tokens up to the end of its block, in one namespace. Consumers take names as
they come; that they equal an engine's own lets one index follow both.
"""

import pickle
from collections.abc import Mapping
from hashlib import sha256
from typing import Protocol

from radixkv.arrays import Int32Array
from radixkv.tree import Namespace


class BlockNames(Protocol):
    """How one engine names blocks."""

    def extend(self, above: bytes | None, ids: Int32Array, namespace: Namespace) -> bytes:
        """The digest of a block: `ids` behind the block of digest `above`; None: at the root.

        Parameters
        ----------
        above
            The digest of the block before it; None: it is the first.
        ids
            Token ids of the block.
        namespace
            What must be equal besides the tokens.

        Returns
        -------
        bytes
            Its bytes.
        """

    def published(self, digest: bytes, namespace: Namespace) -> int:
        """The 64 bits of it that stand in the events.

        Parameters
        ----------
        digest
            A block's digest.
        namespace
            What must be equal besides the tokens.

        Returns
        -------
        int
            64 bits.
        """


class SGLangNames:
    """As SGLang 0.5.23 does, in its default format.

    The salt begins the chain; with an adapter, whose id SGLang joins to the caller's key, what is
    published is hashed once more with both.
    """

    def extend(self, above: bytes | None, ids: Int32Array, namespace: Namespace) -> bytes:
        """See `BlockNames`."""
        if above is None:
            above = b""
            if namespace.salt:
                above = sha256(b"sglang-cache-salt-v1\0" + namespace.salt.encode()).digest()
        return sha256(above + ids.astype("<u4").tobytes()).digest()

    def published(self, digest: bytes, namespace: Namespace) -> int:
        """See `BlockNames`."""
        if namespace.adapter is not None:
            key = ((namespace.extra_key or "") + namespace.adapter).encode()
            length = len(key).to_bytes(8, "little")
            seed = sha256(b"sglang-kv-event-namespace-v1\x01" + length + key + b"\0").digest()
            digest = sha256(seed + digest[:8]).digest()
        return int.from_bytes(digest[:8], "big", signed=True)


class VllmNames:
    """As vLLM 0.32 does with its default algorithm, "sha256" over pickles.

    Parameters
    ----------
    seed
        PYTHONHASHSEED of its processes, where that is set.
    paths
        Of adapters by name, which vLLM hashes too.
    """

    def __init__(
        self, seed: str = "vllm-none-hash", paths: Mapping[str, str] | None = None
    ) -> None:
        self._none = _pickled(seed)
        self._paths = dict(paths or {})

    def extend(self, above: bytes | None, ids: Int32Array, namespace: Namespace) -> bytes:
        """See `BlockNames`."""
        keys: list[tuple[str, ...]] = []
        if namespace.adapter is not None:
            keys.append(("lora", namespace.adapter, self._paths.get(namespace.adapter, "")))
        if namespace.extra_key is not None:
            keys.append(("extra_key", namespace.extra_key))
        if above is None and namespace.salt:
            keys.append(("cache_salt", namespace.salt))
        return _pickled((above or self._none, tuple(ids.tolist()), tuple(keys) or None))

    def published(self, digest: bytes, namespace: Namespace) -> int:
        """See `BlockNames`."""
        return int.from_bytes(digest[-8:], "big")


def _pickled(value: object) -> bytes:
    return sha256(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)).digest()


BLOCK_NAMES: dict[str, type[BlockNames]] = {"sglang": SGLangNames, "vllm": VllmNames}
