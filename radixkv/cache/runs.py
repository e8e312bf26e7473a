"""What is resident, as runs: from the log's events, or from the tree's nodes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.cache.events import Cleared, Event, Update
from radixkv.tree import Namespace, NodeInfo, Stored, Trimmed


@dataclass(slots=True)
class StoredRun:
    """Tokens that one insert added below what was there, less what was trimmed since."""

    parent_run: int
    parent_offset: int
    codes: Int32Array
    namespace: Namespace


Runs: TypeAlias = dict[int, StoredRun]


def replay(events: Iterable[Event], runs: Runs | None = None) -> Runs:
    """The runs that are resident after `events`, from `runs` (changed in place) or from empty."""
    runs = {} if runs is None else runs
    for event in events:
        match event.change:
            case Stored(run, parent_run, parent_offset, codes, namespace):
                runs[run] = StoredRun(parent_run, parent_offset, codes, namespace)
            case Trimmed(run, 0):
                runs.pop(run, None)
            case Trimmed(run, keep) if run in runs:
                runs[run].codes = runs[run].codes[:keep]
            case Cleared():
                runs.clear()
    return runs


def follow(update: Update, runs: Runs) -> None:
    """Bring `runs`, what a follower knows, to the update's revision; they are changed in place.

    What continues a run is in the namespace of that run, whichever it names: the wire leaves it
    out.
    """
    if update.is_start:
        runs.clear()
    for event in update.events:
        replay((event,), runs)
        if isinstance(event.change, Stored) and event.change.parent_run in runs:
            parent = runs[event.change.parent_run]
            runs[event.change.run].namespace = parent.namespace


def runs_of(nodes: Iterable[NodeInfo]) -> Runs:
    """The resident runs as the tree's nodes show them, parents before children."""
    runs: Runs = {}
    parts: dict[int, list[Int32Array]] = {}
    by_id: dict[int, NodeInfo] = {}
    for node in nodes:
        by_id[node.id] = node
        parts.setdefault(node.run, []).append(node.codes)
        if node.run_offset == 0:
            parent = by_id.get(node.parent_id)
            above = (parent.run, parent.run_offset + len(parent.codes)) if parent else (0, 0)
            runs[node.run] = StoredRun(*above, node.codes, node.namespace)
    for number, run in runs.items():
        if len(parts[number]) > 1:
            run.codes = np.concatenate(parts[number])
    return runs
