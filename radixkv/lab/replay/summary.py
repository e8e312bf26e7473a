"""A replay in figures: hit rates as a whole, over time, by session and by namespace."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from radixkv.lab.logs.requests import Indices, RequestLog
from radixkv.lab.replay.replay import Replay
from radixkv.memory.model import ModelShape

_SPANS = 20  # over time
_SESSIONS = 10  # shown by name


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the requests.

    hit_rate: tokens from the cache over prompt tokens, 0 to 1. start_s: the time of the first
    request, in seconds from the earliest of the log; None where the log has no time for it.
    """

    name: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    hit_rate: float
    start_s: float | None = None


def summary(found: Replay) -> dict[str, Any]:
    """The figures of a replay as a whole, as plain values."""
    prompt, cached = int(found.prompt_tokens.sum()), int(found.cached_tokens.sum())
    setting = asdict(found.setting)
    return {
        "hit_rate": found.hit_rate,
        "request_hit_rate": _share(int((found.cached_tokens > 0).sum()), len(found.ids)),
        "requests": len(found.ids),
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "computed_tokens": prompt - cached,
        "evicted_tokens": int(found.evicted_tokens.sum()),
        "largest_delay": int((np.arange(len(found.ids)) - found.arrivals).max(initial=0)),
        "refused": found.refused,
        "peak_in_flight": found.peak_in_flight,
        "waited": found.waited,
        "setting": setting,
        "seconds": round(found.seconds, 3),
    }


def over_time(log: RequestLog, found: Replay) -> list[Part]:
    """The replay in spans of equal numbers of requests."""
    places = np.arange(len(found.ids))
    spans = places * _SPANS // max(len(places), _SPANS)
    starts = np.searchsorted(spans, np.arange(spans.max(initial=-1) + 1))
    earliest = np.fmin.reduce(log.times, initial=np.inf)
    times = log.times[found.arrivals[starts]] - earliest
    names = [f"from request {start}" for start in starts.tolist()]
    known = [None if np.isnan(time) else float(time) for time in times]
    return _parts(found, spans, names, known)


def by_namespace(found: Replay) -> list[Part]:
    """A part for each namespace of the log, by its salt."""
    names = [namespace.salt or "(none)" for namespace in found.namespace_names]
    return _parts(found, found.namespaces, names)


def by_session(log: RequestLog, found: Replay) -> dict[str, Any]:
    """How hit rates spread over sessions, and the sessions that computed most tokens."""
    sessions = log.sessions[found.arrivals]
    prompt, cached = _sums(sessions, found.prompt_tokens), _sums(sessions, found.cached_tokens)
    rates = cached / np.maximum(prompt, 1)
    worst = np.argsort(cached - prompt, kind="stable")[:_SESSIONS]
    first = np.unique(log.sessions, return_index=True)[1]
    counts = np.bincount(sessions, minlength=len(prompt))
    return {
        "sessions": len(prompt),
        "quartiles": np.quantile(rates, [0.25, 0.5, 0.75]).tolist() if len(rates) else [],
        "most_computed": [
            Part(
                log.request(int(first[number])).session,
                int(counts[number]),
                int(prompt[number]),
                int(cached[number]),
                float(rates[number]),
            )
            for number in worst.tolist()
        ],
    }


def saved_prefill(found: Replay, shape: ModelShape, tflops: float) -> dict[str, Any]:
    """FLOPs of the cached tokens, and seconds at a sustained rate of `tflops` * 1e12 a second."""
    zero = np.zeros_like(found.prompt_tokens)
    saved = float(shape.prefill_flops(zero, found.cached_tokens).sum())
    whole = float(shape.prefill_flops(zero, found.prompt_tokens).sum())
    return {
        "model": shape.name,
        "tflops": tflops,
        "saved_flops": saved,
        "prefill_flops": whole,
        "saved_share": saved / whole if whole else 0.0,
        "saved_seconds": saved / (tflops * 1e12),
        "prefill_seconds": whole / (tflops * 1e12),
    }


def _parts(
    found: Replay, groups: Indices, names: list[str], starts: list[float | None] | None = None
) -> list[Part]:
    prompt, cached = _sums(groups, found.prompt_tokens), _sums(groups, found.cached_tokens)
    counts = np.bincount(groups)
    return [
        Part(
            name,
            int(counts[at]),
            int(prompt[at]),
            int(cached[at]),
            _share(int(cached[at]), int(prompt[at])),
            starts[at] if starts else None,
        )
        for at, name in enumerate(names)
    ]


def _sums(groups: Indices, values: Indices) -> Indices:
    # Exact up to 2**53 tokens.
    return np.bincount(groups, weights=values).astype(np.int64)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
