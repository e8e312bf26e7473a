"""Metrics of picks: how many each worker got and why, and how much of their prompts it held."""

from prometheus_client import CollectorRegistry, Counter

from radixkv.router.router import Pick


class PickMetrics:
    """Counters by worker; the hit rate of picks is matched tokens over prompt tokens."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._picks = Counter(
            "radixkv_router_picks",
            "Prompts sent to a worker, by the reason of the pick",
            ["worker", "reason"],
            registry=registry,
        )
        self._prompt_tokens = Counter(
            "radixkv_router_prompt_tokens",
            "Tokens of the prompts sent to a worker",
            ["worker"],
            registry=registry,
        )
        self._matched_tokens = Counter(
            "radixkv_router_matched_tokens",
            "Of those, tokens that the worker held as far as the router knew",
            ["worker"],
            registry=registry,
        )

    def count(self, pick: Pick) -> None:
        """One prompt was placed."""
        self._picks.labels(pick.worker, pick.reason).inc()
        self._prompt_tokens.labels(pick.worker).inc(pick.matched_length + pick.to_compute)
        self._matched_tokens.labels(pick.worker).inc(pick.matched_length)
