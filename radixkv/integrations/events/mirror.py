"""From an engine's blocks back to runs, as a router's index follows them.

Only what is known to be there from the root on is reported. A block whose parent is not there (it
was stored before we came, or evicted from the middle, as vLLM may do) waits until the parent comes.

An index knows tokens, not blocks: two blocks that begin alike share their first tokens. So a run
is hung where its tokens leave those that are there, and it keeps them as long as anything needs
them, although its own blocks may be gone:

    run 1     [ a b c d ]        block a b c d; its last two tokens go with it
    run 2         └─ [ x y ]     block a b x y, whose first two are run 1's
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from radixkv.arrays import EMPTY, Int32Array
from radixkv.cache.events import Cleared
from radixkv.errors import InvalidArgumentError
from radixkv.integrations.events.messages import MEDIUM
from radixkv.tree import Namespace, Stored, Trimmed, as_token_ids

Name: TypeAlias = Hashable
Change: TypeAlias = Stored | Trimmed | Cleared


@dataclass(slots=True, eq=False)
class _Run:
    """Tokens that hang on `parent` behind its first `offset`. number 0: the root of a namespace.

    ends: how many blocks that were reported end at each place. hung: the runs that hang at each.
    """

    number: int
    parent: "_Run | None"
    offset: int
    codes: Int32Array
    ends: Counter[int] = field(default_factory=Counter)
    hung: dict[int, list["_Run"]] = field(default_factory=dict)

    def needed(self) -> int:
        """Tokens up to the last at which anything ends or hangs."""
        return max(max(self.ends, default=0), max(self.hung, default=0))

    def after(self, offset: int, token: int) -> "tuple[_Run, int] | None":
        """Where `token` is behind the first `offset` tokens."""
        if offset < len(self.codes) and self.codes[offset] == token:
            return self, offset
        starts = (run for run in self.hung.get(offset, ()) if run.codes[0] == token)
        run = next(starts, None)
        return None if run is None else (run, 0)


@dataclass(slots=True)
class _Block:
    """run: in which its last token was reported, `end` tokens from its start; None: not reported.

    count: how often it is stored. An engine may hold two copies of one block.
    """

    parent: Name | None
    ids: Int32Array
    namespace: Namespace
    count: int = 1
    run: _Run | None = None
    end: int = 0


class BlockMirror:
    """What one engine holds, by the events that it publishes, in blocks of `block_size` tokens.

    Left out: blocks outside the device's memory, and those with content (images, sounds) or with
    pairs of tokens (EAGLE's), whose tokens do not say what they are.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._numbers = count(1)
        self._clear()

    def _clear(self) -> None:
        self._blocks: dict[Name, _Block] = {}
        self._below: dict[Name | None, list[Name]] = {}
        self._roots: dict[Namespace, _Run] = {}

    def follow(self, events: Iterable[Mapping[str, Any]]) -> list[Change]:
        """What decoded events change, in order. Raises InvalidArgumentError for other blocks."""
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
            yield from self._tell(name)

    def _tell(self, first: Name) -> Iterator[Stored]:
        """A block and all that waits below it, if it is there from the root on."""
        stack = [first]
        while stack:
            block = self._blocks[name := stack.pop()]
            place = self._place_above(block)
            if block.run is not None or place is None:
                continue
            chain = [block]
            while len(below := self._below.get(name, [])) == 1:
                name = below[0]
                chain.append(self._blocks[name])
            stack += below
            yield from self._hang(place, chain)

    def _place_above(self, block: _Block) -> tuple[_Run, int] | None:
        """Where a block's tokens begin; None: what is above it is not there."""
        if block.parent is None:
            return self._roots.setdefault(block.namespace, _Run(0, None, 0, EMPTY)), 0
        parent = self._blocks.get(block.parent)
        return None if parent is None or parent.run is None else (parent.run, parent.end)

    def _hang(self, place: tuple[_Run, int], chain: list[_Block]) -> Iterator[Stored]:
        """Blocks one behind the other: what is there already is walked, the rest is a run."""
        at = 0  # tokens of the chain that are there
        ids = np.concatenate([block.ids for block in chain])
        run, offset = place
        while at < len(ids) and (found := run.after(offset, int(ids[at]))) is not None:
            run, offset, at = found[0], found[1] + 1, at + 1
            if at % self.block_size == 0:
                _end(chain[at // self.block_size - 1], run, offset)
        if at == len(ids):
            return
        new = _Run(next(self._numbers), run, offset, ids[at:])
        run.hung.setdefault(offset, []).append(new)
        for number in range(at // self.block_size, len(chain)):
            _end(chain[number], new, (number + 1) * self.block_size - at)
        above = (run.number, offset) if run.number else (0, 0)
        yield Stored(new.number, *above, new.codes, chain[0].namespace)

    # ---- removed ----

    def _remove(self, name: Name) -> Iterator[Trimmed]:
        block = self._blocks.get(name)
        if block is None:
            return  # stored before we came
        block.count -= 1
        if block.count:
            return
        yield from self._untell(name)
        del self._blocks[name]
        siblings = self._below[block.parent]
        siblings.remove(name)
        if not siblings:
            del self._below[block.parent]

    def _untell(self, name: Name) -> Iterator[Trimmed]:
        """The block and all below it are not there from the root on any more."""
        stack, runs = [name], dict[_Run, None]()
        while stack:
            block = self._blocks[here := stack.pop()]
            run = block.run
            if run is None:
                continue
            run.ends[block.end] -= 1
            if not run.ends[block.end]:
                del run.ends[block.end]
            runs[run] = block.run = None
            stack += self._below.get(here, [])
        for run in reversed(runs):  # what is deepest first
            yield from _shorten(run)


def _end(block: _Block, run: _Run, end: int) -> None:
    block.run, block.end = run, end
    run.ends[end] += 1


def _shorten(run: _Run) -> Iterator[Trimmed]:
    """Cut what nothing needs any more off a run, and off those that it hung on."""
    while run.parent is not None and (keep := run.needed()) < len(run.codes):
        run.codes = run.codes[:keep]
        yield Trimmed(run.number, keep)
        if keep:
            return
        siblings = run.parent.hung[run.offset]
        siblings.remove(run)
        if not siblings:
            del run.parent.hung[run.offset]
        run = run.parent


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
