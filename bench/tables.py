"""Tables of docs/benchmarks.md from bench/results; those of a card are in `bench/gpu/table.py`."""

from collections.abc import Sequence
from typing import Any

from bench.report import load
from bench.rounding import at_least, at_most

CONTENDERS = {
    "radixkv": "radixkv",
    "fused": "radixkv fused",
    "`PrefixCache`": "radixkv cache",
    "SGLang, Rust": "sglang rust",
    "SGLang, C++": "sglang c++",
    "vLLM": "vllm",
}
TREE_ROWS = {
    "a chat turn from a list": ("w1", "cycle from list"),
    "the same in a full cache, which evicts": ("w4", "cycle from list"),
    "a hit of 32,768 tokens, from a list": ("w3", "from list"),
    "the same from an int32 array": ("w3", "native"),
    "evicting one token among 100,000 leaves": ("w4b", "100000 leaves"),
    "memory: bytes a cached token": ("w5", "bytes per token"),
    "memory: bytes a branch of 4 tokens": ("w5b", "bytes per branch"),
}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def tree() -> str:
    samples = load("tree")["samples"]

    def cell(work: str, figure: str, contender: str) -> str:
        found = samples[work].get(contender, {}).get(figure)
        return (
            ""
            if found is None
            else f"{found['median']:,.3g}"
            if found["median"] < 1e3
            else (f"{found['median']:,.0f}")
        )

    return table(
        ["", *CONTENDERS],
        [
            [name, *(cell(*where, contender) for contender in CONTENDERS.values())]
            for name, where in TREE_ROWS.items()
        ],
    )


def admission() -> str:
    adaptive = {
        (row["trace"], row["order"], row["capacity"]): row["adaptive"]
        for row in load("adaptive")["rates"]
    }
    results = load("admission")
    return table(
        ["log, capacity in tokens", "LRU", "`adaptive`", "LRU, longest match", "clairvoyant",
         "infinite"],
        [
            [
                f"{row['trace']}, {row['capacity']:,}",
                f"{row['lru']:.1f} %",
                f"{adaptive[row['trace'], results['order'], row['capacity']]:.1f} %",
                *(f"{row[name]:.1f} %" for name in ("longest_match", "clairvoyant", "infinite")),
            ]
            for row in results["rates"]
        ],
    )  # fmt: skip


def adaptive() -> str:
    results = load("adaptive")
    rates = results["rates"]
    gaps = [row["gap_closed"] for row in rates if row["gap_closed"] is not None]
    worst = max(rates, key=lambda row: float(row["lru"] - row["adaptive"]))
    cost = max(results["costs"], key=lambda row: float(row["times"]))
    return table(
        ["", f"{len({row['trace'] for row in rates})} recorded logs, {len(rates)} rows"],
        [
            [
                "worst row against LRU",
                f"{at_most(worst['lru'] - worst['adaptive'], 2)} points below "
                f"({worst['trace']}, {worst['order']}, {worst['capacity']:,} tokens)",
            ],
            [
                "of the gap between LRU and the clairvoyant reference, closed (mean)",
                f"{at_least(100 * sum(gaps) / len(gaps), 0)} %",
            ],
            [f"costliest operation: {cost['operation']}", f"{at_most(cost['times'], 2)} x LRU's"],
        ],
    )


def correctness() -> str:
    equal, agreement, soaks = (
        load("equality"),
        load("agreement"),
        [load(f"soak-{core}") for core in ("native", "python")],
    )
    return table(
        ["claim", "reached", "command"],
        [
            [
                "the same 32 greedy tokens with the cache as without, page sizes 1 and 16, in "
                "chunks, under eviction and retraction",
                _equal(equal["results"]),
                "`python -m bench.equality`",
            ],
            [
                "random operations against a slow model, all invariants after each, on each core",
                f"{sum(soak['failures'] for soak in soaks)} failures in "
                f"{min(soak['operations'] for soak in soaks):,} on each core",
                "`python -m bench.soak`",
            ],
            [
                "servers, clients and a router's index agree token for token while servers are "
                "killed with -9 and watches are cut",
                f"{agreement['disagreements']} disagreements in {agreement['seconds']:.0f} s, "
                f"{agreement['servers_killed']} kills, {agreement['watches_cut']:,} cuts",
                "`python -m bench.agreement`",
            ],
        ],
    )


def _equal(rows: list[Any]) -> str:
    equal, prompts = (sum(row[name] for row in rows) for name in ("equal", "prompts"))
    logits = max(row["max_logit_difference"] for row in rows)
    return f"{equal} of {prompts} answers, logits within {at_most(1e5 * logits, 1)}e-5"


def service() -> str:
    results = load("service")
    ratios = results["ratios"]
    raw = "batched, of a raw server's tokens/s,"
    return table(
        ["work", "reached"],
        [
            [
                "matches of 64 prompts of 2,000 tokens over gRPC, server and caller on two cores",
                f"{at_least(results['m_tokens_s'], 0)} M tokens/s",
            ],
            [
                "that, of a raw asyncio server that reads them prompt by prompt",
                at_least(ratios[f"{raw} by prompt"], 2),
            ],
            [
                "that, of a raw server that reads the batch in one piece, where gRPC with nothing "
                f"behind it reaches {at_least(results['grpc alone'], 2)}",
                at_least(ratios[f"{raw} batch at once"], 2),
            ],
            [
                "64 callers of one prompt each through one coalescing client, against plain calls",
                f"{at_least(ratios['single, coalesced: times the calls/s'], 1)} x the calls/s, "
                f"{at_most(ratios['single, coalesced: of the p50'], 2)} of the p50",
            ],
            [
                "what 1,000 idle watchers leave to other callers",
                f"{at_least(100 * ratios['idle watchers: of the batched calls/s'], 0)} %",
            ],
            [
                "what a watcher that does not read leaves, while the cache changes",
                f"{at_least(100 * ratios['a slow watcher: of the batched calls/s'], 0)} %",
            ],
        ],
    )


def lab() -> str:
    results = load("lab")
    apart = [abs(row["percent"] - row["published"]["percent"]) for row in results["checked"]]
    speed, curve = results["speed"], results["curve"]
    return table(
        ["work", "reached"],
        [
            [
                "hit rates that the request traces were published with, within 0.1 points",
                f"{sum(round(each, 2) <= 0.1 for each in apart)} of {len(apart)}",
            ],
            [
                f"{speed[0]['prompt_tokens'] / 1e6:.0f} million tokens replayed token by token, at "
                f"{len(speed)} capacities, the slowest",
                f"{at_most(max(row['median_s'] for row in speed), 1)} s",
            ],
            [
                f"hit rates at {len(curve['capacities'])} capacities from one pass, against a "
                "replay for each",
                f"{at_least(curve['times'], 0)} x as fast, "
                f"{curve['largest_difference_points']:g} points apart",
            ],
            [
                "tokens that SGLang with our cache reports as cached, against `lab replay`",
                _sglang_lab(load("sglang_lab")["rows"]),
            ],
        ],
    )


def _sglang_lab(rows: list[Any]) -> str:
    differ = sum(row["requests that differ"] for row in rows)
    requests = sum(row["requests"] for row in rows)
    return f"{differ} of {requests:,} requests differ"


def router_width() -> str:
    reached = {row["name"]: row["reached"] for row in load("router_width")["required"]}
    return (
        f"For 100,000 nodes it takes {at_most(reached['MiB at 1,024 workers'], 0)} MiB at 1,024 "
        f"servers and {at_most(reached['MiB at 10,000 workers'], 0)} MiB at 10,000; a pick among "
        f"1,024 takes {at_most(reached['pick at 1,024 workers / at 64'], 1)} x one among 64 "
        "(`bench/results/router_width.txt`).\n"
    )


def routing() -> str:
    return table(
        ["log", "hit rate", "round robin's", "most work over the mean", "round robin's"],
        [
            [
                case["trace"],
                *(
                    f"{factor * case['policies'][policy][figure]:.{digits}f}{unit}"
                    for figure, factor, digits, unit in (
                        ("hit_rate", 100, 0, " %"),
                        ("imbalance", 1, 2, ""),
                    )
                    for policy in ("cache-aware", "round-robin")
                ),
            ]
            for case in load("routing")["cases"]
        ],
    )


def first_tokens() -> str:
    """First tokens of cache-aware against the best of all rules in each row."""
    return table(
        ["log", "load", "mean, of the best rule's", "95 %, of the best rule's"],
        [
            [trace, load_name, *(_against_best(rules, figure) for figure in ("mean", "p95"))]
            for trace, loads in load("routing")["rules"].items()
            for load_name, rules in loads.items()
        ],
    )


def _against_best(rules: dict[str, Any], figure: str) -> str:
    others = [values[figure] for name, values in rules.items() if name != "cache-aware"]
    return at_most(rules["cache-aware"][figure] / min(others), 2)


TABLES = {
    "tree": tree,
    "adaptive": adaptive,
    "admission": admission,
    "correctness": correctness,
    "service": service,
    "lab": lab,
    "router-width": router_width,
    "routing": routing,
    "first-tokens": first_tokens,
}
