"""What a log says without its contents: how long requests are, when they come, how many at once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from radixkv.lab.logs.requests import Indices, RequestLog

DECODE_RATE = 50.0  # tokens a second that a request is taken to get, where nothing was logged
DAY_S = 86_400
_QUANTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99}


def sizes(log: RequestLog) -> dict[str, Any]:
    """As plain values: tokens of prompts and answers, and times where all requests have them."""
    found: dict[str, Any] = {
        "requests": len(log),
        "sessions": int(log.sessions.max(initial=-1)) + 1,
        "prompt_tokens": _lengths(log.lengths),
        "output_tokens": _lengths(log.output_lengths),
    }
    if seconds := duration_s(log):
        found["times"] = {
            "seconds": seconds,
            "requests_per_day": len(log) * DAY_S / seconds,
            "prompt_tokens_per_day": int(log.lengths.sum()) * DAY_S / seconds,
            "output_tokens_per_day": int(log.output_lengths.sum()) * DAY_S / seconds,
            "most_requests_a_minute": most_within(log.times, 60.0),
            "concurrency": concurrency(log.times, log.output_lengths / DECODE_RATE),
            "taken_decode_rate": DECODE_RATE,
        }
    return found


def duration_s(log: RequestLog) -> float | None:
    """From the first request to the last; None where a request has no time, or all have one."""
    if not len(log) or np.isnan(log.times).any():
        return None
    return float(np.ptp(log.times)) or None


def most_within(times: NDArray[np.float64], seconds: float) -> int:
    """The most requests that came within so many seconds.

    >>> most_within(np.array([0.0, 50.0, 70.0, 100.0]), 60.0)
    3
    """
    in_order = np.sort(times)
    ends = np.searchsorted(in_order, in_order + seconds, side="left")
    return int((ends - np.arange(len(times))).max(initial=0))


def concurrency(times: NDArray[np.float64], seconds: NDArray[np.float64]) -> dict[str, float]:
    """Requests under way, where each takes so many seconds: the most, and on average.

    >>> concurrency(np.array([0.0, 1.0, 2.0]), np.array([2.0, 2.0, 2.0]))
    {'most': 2, 'mean': 1.5}
    """
    moments = np.concatenate([times, times + seconds])
    steps = np.repeat([1, -1], len(times))
    # At one moment, those that end make room first.
    order = np.lexsort((steps, moments))
    whole = float(moments.max() - times.min())
    return {
        "most": int(np.cumsum(steps[order]).max(initial=0)),
        "mean": float(seconds.sum()) / whole if whole else 0.0,
    }


def _lengths(lengths: Indices) -> dict[str, float]:
    if not len(lengths):
        return {"total": 0}
    quantiles = {name: float(np.quantile(lengths, at)) for name, at in _QUANTILES.items()}
    return {
        "total": int(lengths.sum()),
        "mean": float(lengths.mean()),
        **quantiles,
        "most": int(lengths.max()),
    }
