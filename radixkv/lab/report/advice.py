"""What a log says a planner should do: how much room, which policy and order, and what to move."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import Progress, RequestLog
from radixkv.lab.replay.rates import Rates
from radixkv.lab.replay.replay import Replay, replay
from radixkv.lab.replay.scheduling import SCHEDULINGS
from radixkv.lab.replay.setting import Setting
from radixkv.lab.replay.sizes import DAY_S, duration_s
from radixkv.lab.replay.summary import saved_prefill
from radixkv.lab.replay.sweep import sweep
from radixkv.lab.replay.target import TargetSearch, pool_for_first_token
from radixkv.lab.report.findings import MissFinding, findings
from radixkv.lab.report.misses import explain
from radixkv.memory.model import ModelShape
from radixkv.memory.plan import DTYPE_BYTES, dtype_named
from radixkv.tree import POLICIES

_POLICIES = [name for name in ("lru", "adaptive", "hits_per_token") if name in POLICIES]
_PAGE_SIZES = (1, 16, 64)
_WORTH_SAYING = 0.005  # of all prompt tokens
_WORTH_MOVING = 0.05  # of the tokens that are computed
_OF_INFINITE = 0.9  # of its hits, where no target is named


@dataclass(frozen=True, slots=True)
class Serving:
    """The model that is served: its K/V in GiB, and the operations that it sustains a second."""

    shape: ModelShape
    dtype: str
    tflops: float
    ranks: int = 1

    @property
    def bytes_per_token(self) -> int:
        """On each GPU."""
        return self.shape.kv_values(self.ranks) * DTYPE_BYTES[dtype_named(self.dtype)]


@dataclass(frozen=True, slots=True)
class FirstToken:
    """95 % of first tokens must come within `seconds`, on a card of these rates."""

    seconds: float
    rates: Rates


@dataclass(frozen=True, slots=True)
class Change:
    """What another policy, order or page size does: points of hit rate, and the rate then."""

    what: str
    points: float
    hit_rate: float


@dataclass(frozen=True, slots=True)
class Advice:
    """target: the hit rate that was asked for, 0 to 1, or 90 % of an infinite cache's.

    pool: the least tokens that reach it as the setting has it; best_pool: with `best`, the policy
    and order that do most; None where no pool reaches it. capacity: where the changes were tried.
    per_day: figures of one day, where the log has times.
    """

    requests: int
    prompt_tokens: int
    infinite_hit_rate: float
    target: float
    target_is_own: bool
    pool: int | None
    best_pool: int | None
    best: str
    capacity: int | None
    hit_rate: float
    changes: list[Change]
    page_sizes: dict[int, float]
    refused: int
    per_day: dict[str, float] = field(default_factory=dict)
    pool_gib: float | None = None
    best_pool_gib: float | None = None
    model: str = ""
    causes: list[str] = field(default_factory=list)
    first_token_p95_s: float | None = None
    first_token_pool: int | None = None
    first_token_pool_gib: float | None = None

    def paragraph(self) -> str:
        """All of it, for people."""
        parts = [
            self._room(),
            self._first_token(),
            self._better(),
            self._pages(),
            self._day(),
            self._causes(),
        ]
        return " ".join(filter(None, parts))

    def _room(self) -> str:
        whole = (
            f"An infinite cache would serve {_percent(self.infinite_hit_rate)} of the "
            f"{self.prompt_tokens:,} prompt tokens in {self.requests:,} requests."
        )
        if self.pool is None:
            return f"{whole} No pool reaches {_percent(self.target)}."
        wanted = _percent(self.target) + (
            "" if self.target_is_own else f", {_OF_INFINITE:.0%} of that,".replace("%", " %")
        )
        text = f"{whole} {wanted} takes a pool of {_tokens(self.pool, self.pool_gib, self.model)}"
        if self.best_pool is not None and self.best_pool < 0.95 * self.pool:
            less = _tokens(self.best_pool, self.best_pool_gib, "")
            text += f"; with {self.best}, {less}"
        return text + "."

    def _first_token(self) -> str:
        if self.first_token_p95_s is None:
            return ""
        wanted = f"95 % of first tokens within {self.first_token_p95_s:g} s"
        if self.first_token_pool is None:
            return f"No pool of one server gives {wanted}."
        room = _tokens(self.first_token_pool, self.first_token_pool_gib, "")
        return f"A pool of {room} gives {wanted}."

    def _better(self) -> str:
        where = "With unlimited room" if self.capacity is None else (
            f"In a pool of {self.capacity:,} tokens"
        )  # fmt: skip
        said = [
            f"{each.what} brings {100 * each.points:.1f} points ({_percent(each.hit_rate)})"
            for each in self.changes
            if each.points >= _WORTH_SAYING
        ]
        text = f"{where} the hit rate is {_percent(self.hit_rate)}"
        if self.refused:
            text += f", and {self.refused:,} requests are longer than the pool"
        return (
            f"{text}; {_and(said)}." if said else f"{text}; no other policy or order does better."
        )

    def _pages(self) -> str:
        costs = [
            f"of {size} cost {100 * cost:.1f} points"
            for size, cost in self.page_sizes.items()
            if abs(cost) >= _WORTH_SAYING / 5
        ]
        return f"Pages {_and(costs)}." if costs else "Pages of up to 64 tokens cost nothing."

    def _day(self) -> str:
        if not self.per_day:
            return ""
        text = f"In a day {self.per_day['cached_tokens']:,.0f} tokens come from the cache"
        if "gpu_hours" in self.per_day:
            text += f", which saves {self.per_day['gpu_hours']:,.1f} GPU hours of prefill"
        return text + "."

    def _causes(self) -> str:
        return f"Of what is computed, {_and(self.causes)}." if self.causes else ""


def check_target(target: float | None) -> float | None:
    """A share, from percent. Raises InvalidArgumentError."""
    if target is not None and not 0 < target < 100:
        raise InvalidArgumentError(
            f"target must be a hit rate in percent, above 0 and below 100; got {target:g}",
            target=target,
        )
    return None if target is None else target / 100


def advise(
    log: RequestLog,
    setting: Setting,
    *,
    target: float | None = None,
    serving: Serving | None = None,
    first_token: FirstToken | None = None,
    found: list[MissFinding] | None = None,
    computed: int | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Advice:
    """What to do with the log, from replays of it.

    target: a share, 0 to 1. found, computed: findings that are known already and what they are
    shares of. progress: receives the replays of the comparison that are done.
    """
    infinite = replay(log, replace(setting, capacity=None))
    wanted = target or _OF_INFINITE * infinite.hit_rate
    search = TargetSearch(log, setting)
    pool = search.capacity_for(wanted)
    at = setting if setting.capacity is not None else replace(setting, capacity=pool)
    rates = _rates(log, at, jobs, progress)
    best = max(_orders(at), key=rates.__getitem__)
    best_pool = pool if best == at else TargetSearch(log, replace(best)).capacity_for(wanted)
    served = infinite if at.capacity is None else replay(log, at)
    sooner = first_token and pool_for_first_token(log, at, first_token.rates, first_token.seconds)
    if found is None:
        explained = explain(log, at)
        found, computed = findings(log, explained), explained.computed_tokens
    return Advice(
        requests=len(log),
        prompt_tokens=int(log.lengths.sum()),
        infinite_hit_rate=infinite.hit_rate,
        target=wanted,
        target_is_own=target is not None,
        pool=pool,
        best_pool=best_pool,
        best=_name(best),
        capacity=at.capacity,
        hit_rate=served.hit_rate,
        changes=_changes(at, rates),
        page_sizes=_page_costs(at, rates),
        refused=served.refused,
        per_day=_per_day(log, served, serving),
        pool_gib=_gib(pool, serving),
        best_pool_gib=_gib(best_pool, serving),
        model=f"{serving.shape.name} in {serving.dtype}" if serving else "",
        causes=_causes(found, computed or 0),
        first_token_p95_s=first_token.seconds if first_token else None,
        first_token_pool=sooner or None,
        first_token_pool_gib=_gib(sooner or None, serving),
    )


def _orders(setting: Setting) -> list[Setting]:
    """Every policy with every order of admission, the setting's own first."""
    policies = dict.fromkeys((setting.policy, *_POLICIES))
    orders = dict.fromkeys((setting.scheduling, *SCHEDULINGS.values()))
    return [
        replace(setting, policy=policy, scheduling=order) for order in orders for policy in policies
    ]


def _rates(
    log: RequestLog, setting: Setting, jobs: int | None, progress: Progress | None
) -> dict[Setting, float]:
    pages = [replace(setting, page_size=size) for size in _PAGE_SIZES]
    settings = [*dict.fromkeys((setting, *_orders(setting), *pages))]
    found = sweep(log, settings, jobs=jobs, progress=progress)
    return {each: got["hit_rate"] for each, got in zip(settings, found, strict=True)}


def _changes(setting: Setting, rates: dict[Setting, float]) -> list[Change]:
    """The best other policy, the best other order, and both together; the most first."""
    own = rates[setting]
    others = [each for each in _orders(setting) if each != setting]
    kinds = (
        [each for each in others if each.scheduling == setting.scheduling],
        [each for each in others if each.policy == setting.policy],
        [each for each in others if each.policy != setting.policy
         and each.scheduling != setting.scheduling],
    )  # fmt: skip
    best = [max(kind, key=rates.__getitem__) for kind in kinds if kind]
    changes = [Change(_difference(setting, each), rates[each] - own, rates[each]) for each in best]
    *alone, both = sorted(changes[:2], key=lambda each: -each.points) + changes[2:]
    # Both together are worth saying where they do more than one of them.
    most = max((each.points for each in alone), default=0.0)
    return [*alone, both] if both.points >= most + _WORTH_SAYING else alone


def _page_costs(setting: Setting, rates: dict[Setting, float]) -> dict[int, float]:
    own = rates[replace(setting, page_size=1)]
    return {
        size: own - rates[replace(setting, page_size=size)] for size in _PAGE_SIZES if size != 1
    }


def _difference(setting: Setting, other: Setting) -> str:
    parts = [f"the policy {other.policy}"] if other.policy != setting.policy else []
    if other.scheduling != setting.scheduling:
        parts.append(f"admitting by {_order_name(other)}")
    return " with ".join(parts)


def _name(setting: Setting) -> str:
    return f"the policy {setting.policy} and admission by {_order_name(setting)}"


def _order_name(setting: Setting) -> str:
    return next((name for name, how in SCHEDULINGS.items() if how == setting.scheduling), "order")


def _per_day(log: RequestLog, found: Replay, serving: Serving | None) -> dict[str, float]:
    seconds = duration_s(log)
    if seconds is None:
        return {}
    day = DAY_S / seconds
    figures = {
        "requests": len(log) * day,
        "prompt_tokens": float(found.prompt_tokens.sum()) * day,
        "cached_tokens": float(found.cached_tokens.sum()) * day,
    }
    if serving is not None:
        saved: dict[str, Any] = saved_prefill(found, serving.shape, serving.tflops)
        figures["gpu_hours"] = saved["saved_seconds"] / 3600 * day
    return figures


def _gib(tokens: int | None, serving: Serving | None) -> float | None:
    return None if tokens is None or serving is None else tokens * serving.bytes_per_token / 2**30


def _causes(found: Iterable[MissFinding], computed: int) -> list[str]:
    """The biggest findings that something can be done about, in words."""
    said = []
    for each in found:
        if each.advice and each.tokens >= _WORTH_MOVING * max(computed, 1):
            share = _percent(each.tokens / computed)
            said.append(f"{share} is {each.what} ({each.advice})")
    return said[:3]


def _tokens(tokens: int, gib: float | None, model: str) -> str:
    memory = "" if gib is None else f" ({gib:,.2f} GiB{' of ' * bool(model)}{model})"
    return f"{tokens:,} tokens{memory}"


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
