"""A log as paths through the tree of all its prompts: what an unbounded cache would hold.

    the runs of tokens          what the requests are
    0 ── 1 ── 2                 0, 1, 2
         └─── 3 ── 4            0, 1, 3
                                0, 1, 3, 4

No request ever enters or leaves a run in the middle, so all its tokens share one history. Analyses
of the whole log work with runs, far fewer than tokens, and are still exact.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from radixkv.arrays import INT32_MAX, Int32Array
from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import Indices, LoggedRequest
from radixkv.pages import round_down
from radixkv.tree import RadixTree, new_tree

Runs: TypeAlias = list[int]


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """Runs of tokens, and which of them each request goes through.

    parents, lengths: of each run, parents first; a root's parent is -1. ends: (n,) int64, the last
    run of each request, -1 for a request shorter than a page. most_hits: (n,) int64, tokens of a
    request that can come from a cache, in whole pages of its key; prompt_tokens: (n,) int64.
    """

    page_size: int
    parents: list[int]
    lengths: list[int]
    ends: Indices
    most_hits: Indices
    prompt_tokens: Indices

    def path(self, request: int) -> Runs:
        """The runs of a request, from its first token on."""
        runs, run = [], int(self.ends[request])
        while run >= 0:
            runs.append(run)
            run = self.parents[run]
        return runs[::-1]

    def hits(self, request: int, cached: int) -> int:
        """Tokens that come from the cache if `cached` of its key are there."""
        return min(cached, int(self.most_hits[request]), int(self.prompt_tokens[request]) - 1)

    @property
    def ideal_hit_rate(self) -> float:
        """Of an infinite cache."""
        seen = [False] * len(self.lengths)
        hits = 0
        for request in range(len(self.ends)):
            cached = 0
            for run in self.path(request):
                cached += self.lengths[run] * seen[run]
                seen[run] = True
            hits += self.hits(request, cached)
        return hits / max(int(self.prompt_tokens.sum()), 1)


def find_paths(log: Iterable[LoggedRequest], *, page_size: int = 1, outputs: bool = False) -> Paths:
    """The paths of the requests of `log`, in its order.

    outputs: the first output of a request is cached with its prompt. Memory: 4 to 8 bytes for each
    token of the tree. Raises InvalidArgumentError for a log of more distinct tokens than slots.
    """
    tree, last_slots, numbers = new_tree(page_size), [], []
    used_slots = 0
    for request in log:
        key = _key(request, page_size, outputs)
        held = tree.probe(key, request.namespace)
        new = len(key) - held
        if used_slots + new > INT32_MAX:
            raise InvalidArgumentError(
                f"the log must have {INT32_MAX:,} distinct tokens or fewer; got more"
            )
        slots = np.concatenate(
            [np.zeros(held, np.int32), np.arange(used_slots, used_slots + new, dtype=np.int32)]
        )
        found = tree.insert(key, slots, request.namespace)
        last_slots.append(int(slots[-1] if new else found.slots[-1]) if len(key) else -1)
        used_slots += new
        numbers.append((round_down(len(request.token_ids) - 1, page_size), request.length))
    return _number_runs(tree, np.array(last_slots, np.int64), np.array(numbers).reshape(-1, 2))


def _key(request: LoggedRequest, page_size: int, outputs: bool) -> Int32Array:
    parts = [request.token_ids, *(request.outputs[:1] if outputs else ())]
    key = np.concatenate(parts) if len(parts) > 1 else request.token_ids
    return key[: round_down(len(key), page_size)]


def _number_runs(tree: RadixTree, last_slots: Indices, numbers: Indices) -> Paths:
    run_of_node: dict[int, int] = {0: -1}
    run_of_slot: dict[int, int] = {-1: -1}
    parents, lengths = [], []
    for run, node in enumerate(tree.walk()):
        run_of_node[node.id] = run_of_slot[int(node.slots[-1])] = run
        parents.append(run_of_node[node.parent_id])
        lengths.append(len(node.slots))
    return Paths(
        tree.page_size,
        parents,
        lengths,
        ends=np.array([run_of_slot[slot] for slot in last_slots.tolist()], np.int64),
        most_hits=numbers[:, 0].astype(np.int64),
        prompt_tokens=numbers[:, 1].astype(np.int64),
    )
