"""From an engine's blocks back to runs, as a router's index follows them.

Only what is known to be there from the root on is reported. A block whose parent is not there (it
was stored before we came, or evicted from the middle, as vLLM may do) waits until the parent comes.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.cache.events import Cleared
from radixkv.errors import InvalidArgumentError
from radixkv.integrations.events.messages import MEDIUM
from radixkv.tree import Namespace, Stored, Trimmed, as_token_ids

Name: TypeAlias = Hashable
Change: TypeAlias = Stored | Trimmed | Cleared


@dataclass(slots=True)
class _Block:
    """run: in which it was reported, up to `end` tokens from its start; None: not reported.

    count: how often it is stored. An engine may hold two copies of one block.
    """

    parent: Name | None
    ids: Int32Array
    namespace: Namespace
    count: int = 1
    run: int | None = None
    end: int = 0


class BlockMirror:
    """What one engine holds, by the events that it publishes, in blocks of `block_size` tokens.

    Left out: blocks outside the device's memory, and those with content (images, sounds) or with
    pairs of tokens (EAGLE's), whose tokens do not say what they are.

    Parameters
    ----------
    block_size
        Tokens a block.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._numbers = count(1)
        self._clear()

    def _clear(self) -> None:
        self._blocks: dict[Name, _Block] = {}
        self._below: dict[Name | None, list[Name]] = {}

    def follow(self, events: Iterable[Mapping[str, Any]]) -> list[Change]:
        """What decoded events change, in order.

        Parameters
        ----------
        events
            Decoded events of an engine, in order.

        Returns
        -------
        list[Change]
            Of what is held.

        Raises
        ------
        InvalidArgumentError
            For other blocks.
        """
        changes: list[Change] = []
        for event in events:
            if event["type"] == "AllBlocksCleared":
                self._clear()
                changes.append(Cleared())
            elif event.get("medium") not in (None, MEDIUM):
                continue
            elif event["type"] == "BlockStored":
                changes += self._store(event)
            elif event["type"] == "BlockRemoved":
                for name in event["block_hashes"]:
                    changes += self._remove(name)
        return changes

    # ---- stored ----

    def _store(self, event: Mapping[str, Any]) -> Iterator[Change]:
        if event["block_size"] != self.block_size:
            raise InvalidArgumentError(
                f"block_size must be the engine's, {event['block_size']}; got {self.block_size}"
            )
        tokens, parent = event["token_ids"], event["parent_block_hash"]
        if any(not isinstance(token, int) for token in tokens) or _has_content(event):
            return
        ids, namespace = as_token_ids(tokens), _namespace(event)
        fresh: list[Name] = []
        for at, name in enumerate(event["block_hashes"]):
            known = self._blocks.get(name)
            if known is not None:
                known.count += 1
            else:
                part = ids[at * self.block_size : (at + 1) * self.block_size]
                self._blocks[name] = _Block(parent, part, namespace)
                self._below.setdefault(parent, []).append(name)
                fresh.append(name)
            parent = name
        for name in fresh:
            yield from self._report(name)

    def _report(self, first: Name) -> Iterator[Stored]:
        """A block and all that waits below it, if it is there from the root on."""
        stack = [first]
        while stack:
            block = self._blocks[name := stack.pop()]
            above = self._place_above(block)
            if block.run is not None or above is None:
                continue
            chain = [block]
            while len(below := self._below.get(name, [])) == 1:
                name = below[0]
                chain.append(self._blocks[name])
            stack += below
            yield self._run_of(above, chain)

    def _place_above(self, block: _Block) -> tuple[int, int] | None:
        """The run and offset behind which a block begins; None: what is above it is not there."""
        if block.parent is None:
            return 0, 0
        parent = self._blocks.get(block.parent)
        return None if parent is None or parent.run is None else (parent.run, parent.end)

    def _run_of(self, above: tuple[int, int], chain: list[_Block]) -> Stored:
        """Blocks one behind the other become a run."""
        run = next(self._numbers)
        for at, block in enumerate(chain, start=1):
            block.run, block.end = run, at * self.block_size
        return Stored(run, *above, np.concatenate([b.ids for b in chain]), chain[0].namespace)

    # ---- removed ----

    def _remove(self, name: Name) -> Iterator[Trimmed]:
        block = self._blocks.get(name)
        if block is None:
            return  # stored before we came
        block.count -= 1
        if block.count:
            return
        yield from self._withdraw(name)
        del self._blocks[name]
        siblings = self._below[block.parent]
        siblings.remove(name)
        if not siblings:
            del self._below[block.parent]

    def _withdraw(self, name: Name) -> Iterator[Trimmed]:
        """The block and all below it are not there from the root on any more."""
        stack, kept = [name], dict[int, int]()
        while stack:
            block = self._blocks[here := stack.pop()]
            if block.run is None:
                continue
            kept[block.run] = min(kept.get(block.run, block.end), block.end - self.block_size)
            block.run = None
            stack += self._below.get(here, [])
        # What is deepest was found last.
        yield from (Trimmed(run, keep) for run, keep in reversed(kept.items()))


def _namespace(event: Mapping[str, Any]) -> Namespace:
    """SGLang names the salt; vLLM has it among the first block's extra keys, behind the adapter."""
    adapter, salt = event.get("lora_name"), event.get("cache_salt")
    texts = [key for key in _extra_keys(event) if isinstance(key, str) and key != adapter]
    return Namespace(salt=salt or (texts[0] if texts else None), adapter=adapter)


def _has_content(event: Mapping[str, Any]) -> bool:
    return any(not isinstance(key, str) for key in _extra_keys(event))


def _extra_keys(event: Mapping[str, Any]) -> Iterator[Any]:
    for keys in event.get("extra_keys") or ():
        yield from keys or ()
