"""What followers know of an engine by its events, beside what the engine reports.

An engine's script runs `Follow` in the engine's process; its test has `judge` look at the outcome.
"""

import random
from dataclasses import asdict, dataclass
from types import SimpleNamespace

import msgspec

from radixkv import Namespace, PrefixCache
from radixkv.integrations.events import BlockTranslator, EngineEvents
from radixkv.router import Router
from tests.hosts.models import VOCABULARY
from tests.support.event_subscriber import Subscriber
from tests.support.waiting import nudge_until

ADAPTER, SALT = "adapter", "tenant"
# (salt, adapter) of requests.
SPACES = ((None, None), (SALT, None), (None, ADAPTER), (SALT, ADAPTER))
BEFORE, AFTER, JOIN_S = 24, 12, 120


@dataclass(frozen=True)
class Prompt:
    """What was asked, and in which namespace."""

    ids: list[int]
    salt: str | None = None
    adapter: str | None = None

    @property
    def namespace(self):
        return Namespace(salt=self.salt, adapter=self.adapter)


class Follow:
    """Asks an engine, and our router and Dynamo's `indexer` what they know of it.

    ask: `ask(prompt)` computes it whole and returns how much the engine reports as cached.
    """

    def __init__(self, ask, endpoint, replay, block_size, indexer=None):
        self._ask, self._endpoint, self._replay = ask, endpoint, replay
        self._block_size, self._indexer = block_size, indexer
        self._rng, self._asked = random.Random(1), []
        self._roots = [self._fresh(60) for _ in range(2)]

    def run(self):
        """`rows`: of each prompt, how much of it is cached for each; `asked`: all prompts in order;
        `stored`: the blocks that the engine ever published."""
        rows, prompts = [], [self._prompt() for _ in range(BEFORE)]
        for prompt in prompts:  # before anyone follows
            self._compute(prompt)
        with Router() as router:
            source = EngineEvents(self._endpoint, self._replay, block_size=self._block_size)
            router.add_worker("engine", source, page_size=self._block_size)
            if self._indexer is not None:
                self._indexer.register(self._endpoint, self._replay, self._block_size)
            for prompt in [*prompts[::-1], *(self._prompt() for _ in range(AFTER))]:
                self._settle(router.index)
                known = self._known(router.index, prompt)
                longer = Prompt([*prompt.ids, 7], prompt.salt, prompt.adapter)
                known["engine"] = self._compute(longer)
                rows.append({"length": len(prompt.ids), "known": known})
        asked = [asdict(prompt) for prompt in self._asked]
        return {"rows": rows, "asked": asked, "stored": self._stored()}

    def _fresh(self, n):
        return [self._rng.randrange(VOCABULARY) for _ in range(n)]

    def _prompt(self):
        """One that shares its beginning with others, in some namespace."""
        base = self._rng.choice(self._roots)[: self._rng.randrange(20, 61)]
        return Prompt(base + self._fresh(40), *self._rng.choice(SPACES))

    def _compute(self, prompt):
        self._asked.append(prompt)
        return self._ask(prompt)

    def _known(self, index, prompt):
        known = {"router": index.lookup(prompt.ids, prompt.namespace).get("engine", 0)}
        if self._indexer is not None and prompt.namespace == Namespace():
            known["dynamo"] = self._indexer.tokens(prompt.ids)
        return known

    def _settle(self, index):
        """Until all followers know of a block that was stored last, and so of all before it."""

        def one_more():
            ids = self._fresh(self._block_size)
            self._compute(Prompt([*ids, 7]))
            return Prompt(ids)

        def is_known(prompt):
            return set(self._known(index, prompt).values()) == {self._block_size}

        nudge_until(one_more, is_known, again_s=2, timeout_s=JOIN_S)

    def _stored(self):
        """[name, parent, tokens] of each block."""
        ends = SimpleNamespace(endpoint=self._endpoint, replay_endpoint=self._replay)
        subscriber, blocks = Subscriber(ends), {}
        for _, batch in subscriber.replayed(0):
            for event in msgspec.msgpack.decode(batch)[1]:
                if event["type"] == "BlockStored":
                    blocks |= blocks_of(event)
        subscriber.close()
        return [[name, parent, tokens] for name, (parent, tokens) in blocks.items()]


def blocks_of(event):
    """Parent and tokens of the blocks of a decoded event, by name."""
    blocks, parent, size = {}, event["parent_block_hash"], event["block_size"]
    for at, name in enumerate(event["block_hashes"]):
        blocks[name] = (parent, event["token_ids"][at * size : (at + 1) * size])
        parent = name
    return blocks


def judge(found, names, adapter, block_size):
    """Assert that router and engine agree on each prompt, and that the engine's blocks are those of
    a cache of ours for the same prompts.

    names: how ours are named. adapter: what the engine hashes for the one that was asked for.
    """
    for row in found["rows"]:
        assert len({*row["known"].values()}) == 1, row
    cached = [row["known"]["engine"] for row in found["rows"]]
    assert sum(cached) > 300
    # Some were evicted.
    assert any(n < row["length"] - block_size for n, row in zip(cached, found["rows"], strict=True))

    cache, translator = PrefixCache(100_000), BlockTranslator(block_size, names)
    for prompt in found["asked"]:
        space = Namespace(salt=prompt["salt"], adapter=prompt["adapter"] and adapter)
        cache.finish(cache.admit(prompt["ids"], space), up_to=len(prompt["ids"]))
    ours = {}
    for event in translator.translate(event.change for event in cache.events.since(0)):
        ours |= blocks_of(msgspec.to_builtins(event))
    assert {name: (parent, ids) for name, parent, ids in found["stored"]} == ours
