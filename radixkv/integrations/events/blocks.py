"""From runs of single tokens to blocks.

A block of B tokens belongs to the run that holds its last one: it is stored when that is, and
removed when that run is trimmed below it.

    run 1     [ t t t t t t t t t t ]        B = 4: blocks 0 and 1; the rest of 2 is not there
    run 2               after 6:  [ t t t ]  block 1 again, with other tokens: 6 of it are run 1's
"""

from collections.abc import Iterable

import numpy as np

from radixkv.arguments import at_least
from radixkv.arrays import EMPTY, Int32Array
from radixkv.cache.events import Cleared
from radixkv.errors import InvalidArgumentError
from radixkv.integrations.events.messages import (
    MEDIUM,
    AllBlocksCleared,
    BlockEvent,
    BlockRemoved,
    BlockStored,
)
from radixkv.integrations.events.names import BlockNames, SGLangNames
from radixkv.tree import Namespace, Stored, Trimmed


class _ReportedRun:
    """Tokens that one insert added. start: how many are above it. digests: of the blocks that end
    in it, from block `first` on."""

    __slots__ = ("codes", "digests", "first", "namespace", "parent", "start")

    def __init__(
        self,
        start: int,
        codes: Int32Array,
        parent: "_ReportedRun | None",
        namespace: Namespace,
        block_size: int,
    ) -> None:
        self.start, self.codes, self.parent, self.namespace = start, codes, parent, namespace
        self.first = start // block_size
        self.digests: list[bytes] = []


class BlockTranslator:
    """Follows the changes of one tree, and reports them in blocks of `block_size` tokens.

    Cost: O(tokens stored + block_size) a change, and memory for the names of all blocks.

    Parameters
    ----------
    block_size
        Tokens a block.
    names
        As which engine makes them. Blocks in which there is content (images, sounds) and those
        behind them are not reported: their tokens name it within one process only.
    page_size
        The tree's. A block is some whole pages, because part of a page is of no use.

    Raises
    ------
    InvalidArgumentError
        For a value out of range.
    """

    def __init__(
        self, block_size: int, names: BlockNames | None = None, *, page_size: int = 1
    ) -> None:
        self.block_size = at_least(1, block_size=block_size)
        if block_size % page_size:
            raise InvalidArgumentError(
                f"block_size must be a multiple of the page size, {page_size}; got {block_size}"
            )
        self._names = SGLangNames() if names is None else names
        self._runs: dict[int, _ReportedRun] = {}

    def translate(self, changes: Iterable[Stored | Trimmed | Cleared]) -> list[BlockEvent]:
        """What the changes do to blocks, in order; nothing for those that complete none.

        Parameters
        ----------
        changes
            Of the tree, in order.

        Returns
        -------
        list[BlockEvent]
            Blocks stored and removed, in order.
        """
        events: list[BlockEvent] = []
        for change in changes:
            match change:
                case Stored():
                    event: BlockEvent | None = self._store(change)
                case Trimmed():
                    event = self._trim(change)
                case Cleared():
                    self._runs.clear()
                    event = AllBlocksCleared()
            if event is not None:
                events.append(event)
        return events

    def _store(self, change: Stored) -> BlockStored | None:
        parent = self._runs[change.parent_run] if change.parent_run else None
        start = parent.start + change.parent_offset if parent else 0
        namespace = parent.namespace if parent else change.namespace
        run = _ReportedRun(start, change.codes, parent, namespace, self.block_size)
        self._runs[change.run] = run
        above = self._digest(parent, run.first - 1)
        if run.first and above is None:
            return None  # behind content
        ids = np.concatenate([self._between(parent, run.first * self.block_size, start), run.codes])
        blocks = [*_whole_blocks(ids, self.block_size)]
        if not blocks:
            return None
        digest = above
        for block in blocks:
            digest = self._names.extend(digest, block, namespace)
            run.digests.append(digest)
        return BlockStored(
            block_hashes=self._tell(run.digests, namespace),
            parent_block_hash=None if above is None else self._names.published(above, namespace),
            token_ids=np.concatenate(blocks).tolist(),
            block_size=self.block_size,
            lora_id=None,
            medium=MEDIUM,
            lora_name=namespace.adapter,
            cache_salt=namespace.salt,
        )

    def _trim(self, change: Trimmed) -> BlockRemoved | None:
        run = self._runs[change.run]
        keep = (run.start + change.keep) // self.block_size - run.first if change.keep else 0
        gone = run.digests[keep:]
        if change.keep:
            run.digests = run.digests[:keep]
            run.codes = run.codes[: change.keep]
        else:
            del self._runs[change.run]
        return BlockRemoved(self._tell(gone, run.namespace), MEDIUM) if gone else None

    def _tell(self, digests: Iterable[bytes], namespace: Namespace) -> list[int]:
        return [self._names.published(digest, namespace) for digest in digests]

    def _digest(self, run: _ReportedRun | None, block: int) -> bytes | None:
        """Of a block on the path that ends with `run`; None where it has none."""
        while run is not None and block < run.first:
            run = run.parent
        at = block - run.first if run is not None else -1
        return run.digests[at] if run is not None and 0 <= at < len(run.digests) else None

    def _between(self, run: _ReportedRun | None, begin: int, end: int) -> Int32Array:
        """The tokens from `begin` to `end` on the path that ends with `run`."""
        parts: list[Int32Array] = []
        while run is not None and begin < end:
            low = max(begin, run.start)
            if low < end:
                parts.append(run.codes[low - run.start : end - run.start])
                end = low
            run = run.parent
        return np.concatenate([EMPTY, *reversed(parts)])


def _whole_blocks(ids: Int32Array, size: int) -> Iterable[Int32Array]:
    """In order, up to the first that holds content."""
    for begin in range(0, len(ids) - size + 1, size):
        block = ids[begin : begin + size]
        if (block < 0).any():
            return
        yield block
