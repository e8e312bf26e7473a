"""All that a report shows of one log: replays side by side, causes and findings."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from radixkv.arguments import at_least
from radixkv.lab.logs.requests import Progress, RequestLog
from radixkv.lab.logs.tokenizing import Tokenizer
from radixkv.lab.replay import summary
from radixkv.lab.replay.clairvoyant import clairvoyant_hit_rate
from radixkv.lab.replay.curve import Curve, lru_curve
from radixkv.lab.replay.paths import find_paths
from radixkv.lab.replay.pool import longest_request
from radixkv.lab.replay.replay import Replay, replay
from radixkv.lab.replay.scheduling import SCHEDULINGS
from radixkv.lab.replay.setting import Setting
from radixkv.lab.replay.sweep import capacities_up_to, sweep
from radixkv.lab.replay.target import TargetSearch
from radixkv.lab.report.findings import MissFinding, findings
from radixkv.lab.report.misses import MissReport, explain
from radixkv.memory.model import ModelShape

PAGE_SIZES = (1, 16, 64, 512)
_CAPACITIES = 9


@dataclass(frozen=True, slots=True)
class Study:
    """`rates` has the hit rate of every setting that was replayed.

    found: the replay at the setting in question; ideal: the same with an infinite cache. curve: of
    LRU at every capacity; None where one pass is not exact (see `TargetSearch`). clairvoyant: the
    reference at `capacities` and between them, always with one request in flight and in order of
    arrival.
    """

    log: RequestLog
    found: Replay
    ideal: Replay
    rates: dict[Setting, float]
    capacities: list[int]
    policies: list[str]
    explained: MissReport
    findings: list[MissFinding]
    curve: Curve | None
    clairvoyant: dict[int, float]
    prefill: dict[str, Any] | None

    @property
    def setting(self) -> Setting:
        return self.found.setting

    def by_capacity(self, **change: Any) -> list[float]:
        """Hit rates at `capacities`, with the setting changed so."""
        changed = replace(self.setting, **change)
        return [self.rates[replace(changed, capacity=each)] for each in self.capacities]

    def by_page_size(self, capacity: int | None) -> list[float]:
        """Hit rates at `PAGE_SIZES`."""
        changed = replace(self.setting, capacity=capacity)
        return [self.rates[replace(changed, page_size=each)] for each in PAGE_SIZES]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return summary.summary(self.found) | {
            "infinite_hit_rate": self.ideal.hit_rate,
            "capacities": self.capacities,
            "hit_rates_by_policy": {
                policy: self.by_capacity(policy=policy) for policy in self.policies
            },
            "clairvoyant_hit_rates": [self.clairvoyant[each] for each in self.capacities],
            "hit_rates_by_scheduling": {
                name: self.by_capacity(scheduling=how) for name, how in SCHEDULINGS.items()
            },
            "page_sizes": PAGE_SIZES,
            "infinite_hit_rates_by_page_size": self.by_page_size(None),
            "causes": self.explained.totals(),
            "findings": self.findings,
            "prefill": self.prefill,
        }


def study(
    log: RequestLog,
    setting: Setting,
    *,
    policies: list[str],
    capacities: list[int] | None = None,
    shape: ModelShape | None = None,
    tflops: float = 400,
    tokenizer: Tokenizer | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Study:
    """Replays the log at the setting and around it.

    capacities: of 1 or more; None: nine, up to what an infinite cache holds. progress:
    receives the replays of the sweep that are done.
    """
    if capacities:
        at_least(1, capacity=min(capacities))
    ideal = replay(log, replace(setting, capacity=None))
    found = ideal if setting.capacity is None else replay(log, setting)
    paths = find_paths(log, page_size=setting.page_size, outputs=setting.outputs)
    least = longest_request(log, setting.page_size) if setting.capacity_of == "pool" else 1
    chosen = capacities or capacities_up_to(sum(paths.lengths), _CAPACITIES, least)
    policies = [*dict.fromkeys([setting.policy, *policies])]
    settings = _around(setting, chosen, policies)
    swept = sweep(log, settings, jobs=jobs, progress=progress)
    search = TargetSearch(log, setting, paths)
    explained = explain(log, setting)
    return Study(
        log=log,
        found=found,
        ideal=ideal,
        rates={each: got["hit_rate"] for each, got in zip(settings, swept, strict=True)},
        capacities=chosen,
        policies=policies,
        explained=explained,
        findings=findings(log, explained, tokenizer),
        curve=lru_curve(paths) if search.is_exact else None,
        clairvoyant={each: clairvoyant_hit_rate(paths, each) for each in _denser(chosen)},
        prefill=summary.saved_prefill(found, shape, tflops) if shape else None,
    )


def _denser(capacities: list[int]) -> list[int]:
    between = [round((low * high) ** 0.5) for low, high in pairwise(capacities)]
    return sorted({*capacities, *between})


def _around(setting: Setting, capacities: list[int], policies: list[str]) -> list[Setting]:
    varied = [
        replace(setting, capacity=capacity, policy=policy)
        for capacity in capacities
        for policy in policies
    ]
    varied += [
        replace(setting, capacity=capacity, scheduling=how)
        for capacity in capacities
        for how in SCHEDULINGS.values()
    ]
    varied += [
        replace(setting, capacity=capacity, page_size=page_size)
        for capacity in {setting.capacity, None}
        for page_size in PAGE_SIZES
    ]
    return [*dict.fromkeys(varied)]
