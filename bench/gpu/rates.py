"""How long an engine's steps take on this card: the rates behind `radixkv lab replay --card`.

    python -m bench.gpu.rates            into bench/results/gpu/rates.json, and the rates fitted
    python -m bench.gpu.rates --fit      fits again to what was measured before
    python -m bench.gpu.rates --tiny     a few layers of a small one: does it run at all?

The model, the generator and the functions are those of `bench.gpu.serving`, with flat attention, at
other shapes: prompts with a cached beginning and without, and chats that decode, some with one
system prompt and some with nothing in common. `Rates` is fitted to them; the shapes of
`bench.gpu.serving` are kept out of the fit and predicted by it.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from bench.report import RESULTS, Claim, judge
from radixkv.lab.replay.rates import Rates

CARDS = Path(__file__).parents[2] / "radixkv" / "lab" / "replay" / "cards"
MOST_OFF = 0.1  # of what is predicted
# Cached tokens of a prompt, and the rest of it.
PROMPTS = ((512, 128), (2048, 512), (4096, 1024), (16384, 2048))
# Chats, tokens of their common system prompt, and of their own.
SHARED = ((64, 2048, 64), (32, 4096, 64), (16, 8192, 64), (8, 512, 64))
APART = ((64, 16, 512), (32, 16, 1024), (16, 16, 2048), (8, 16, 4096))
# A step that computes prompts counts for the fit where it takes so much more than the launches.
BUSY = 1.2


class Row(NamedTuple):
    """A step that was measured: prompt tokens computed, and each with those before it; requests
    that decode, and their K/V; and the median milliseconds.
    """

    kind: str
    prefill: int
    pairs: int
    decoding: int
    kv_tokens: int
    ms: float

    def by(self, rates: Rates) -> float:
        """Milliseconds by these rates."""
        return 1e3 * rates.step_s(self.prefill, self.pairs, self.decoding, self.kv_tokens)

    @property
    def is_held_out(self) -> bool:
        return self.kind == "serving"


def fit(rows: list[Row]) -> Rates:
    """The rates with the least squares of relative errors; rows of `serving` are not looked at."""
    known = [row for row in rows if not row.is_held_out]
    launch = min((row.ms for row in known if row.prefill), default=0.0)
    used = [row for row in known if not row.prefill or row.ms > BUSY * launch]
    terms = np.array([[1.0, row.prefill, row.pairs, row.decoding, row.kv_tokens] for row in used])
    ms = np.array([row.ms for row in used])
    step, prefill, pair, decode, kv = _least_squares(terms / ms[:, None], np.ones(len(used)))
    return Rates(
        step_ms=_rounded(step),
        prefill_us=_rounded(prefill * 1e3),
        decode_us=_rounded(decode * 1e3),
        kv_ns=_rounded(kv * 1e6),
        pair_ns=_rounded(pair * 1e6),
        launch_ms=_rounded(launch),
    )


def _least_squares(terms: Any, values: Any) -> Any:
    """None below 0: the term that would be most is left out, until none is."""
    scale = np.abs(terms).max(axis=0)
    kept = [*range(terms.shape[1])]
    while True:
        found = np.linalg.lstsq(terms[:, kept] / scale[kept], values, rcond=None)[0]
        if (found >= 0).all():
            break
        del kept[int(found.argmin())]
    whole = np.zeros(terms.shape[1])
    whole[kept] = found / scale[kept]
    return whole


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def judged(rows: list[Row], rates: Rates) -> list[Claim]:
    return [
        Claim(
            f"{row.prefill} prompt tokens, {row.decoding} chats, {row.ms} ms",
            abs(row.by(rates) / row.ms - 1),
            "at most",
            MOST_OFF,
        )
        for row in rows
        if row.is_held_out
    ]


# ---- measuring ----


def prompt_rows(model: Any, sizes: Any, backend: str, kind: str) -> Iterator[Row]:
    from bench.gpu.serving import first_tokens

    samples = first_tokens(model, sizes, backend)["samples_s"]
    for name, cached in (("uncached", 0), ("cached", sizes.system)):
        length = sizes.system + sizes.rest
        computed = length - cached
        pairs = computed * cached + computed * (computed + 1) // 2
        # The first compiles.
        yield Row(kind, computed, pairs, 0, 0, round(median(samples[name][1:]) * 1e3, 3))


def decode_row(model: Any, sizes: Any, backend: str, kind: str) -> Row:
    from bench.gpu.serving import step_us

    us, _ = step_us(model, sizes, backend, ahead=True)
    # Of the steps that are measured, in the mean; the first captures the graph.
    tokens = sizes.system + sizes.own + 1 + sizes.new_tokens / 2
    return Row(kind, 0, 0, sizes.chats, round(sizes.chats * tokens), round(median(us) / 1e3, 3))


def measured(model: Any, sizes: Any, backend: str, tiny: bool) -> Iterator[Row]:
    from dataclasses import replace

    divided = 64 if tiny else 1
    yield from prompt_rows(model, sizes, backend, "serving")
    yield decode_row(model, sizes, backend, "serving")
    for system, rest in PROMPTS:
        at = replace(sizes, system=system // divided, rest=rest // divided)
        yield from prompt_rows(model, at, backend, "prompt")
    for kind, shapes in (("shared", SHARED), ("apart", APART)):
        for chats, system, own in shapes:
            at = replace(
                sizes, chats=chats, system=max(system // divided, 8),
                own=max(own // divided, 8), new_tokens=24,
            )  # fmt: skip
            yield decode_row(model, at, backend, kind)


def measure(arguments: argparse.Namespace) -> list[Row]:
    from bench.gpu.measure import require_card
    from bench.gpu.serving import TINY, Sizes, model_of

    if arguments.device == "cuda":
        require_card()
    sizes = TINY if arguments.tiny else Sizes()
    model = model_of(sizes, arguments.device)
    rows, begun = [], time.perf_counter()
    for row in measured(model, sizes, arguments.backend, arguments.tiny):
        print(f"{time.perf_counter() - begun:.1f} s", row, flush=True)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--backend", default="fa3")
    parser.add_argument("--card", default="h200", help="name of the file of rates")
    parser.add_argument("--out", type=Path, default=RESULTS / "gpu" / "rates.json")
    arguments = parser.parse_args()
    if arguments.fit:
        rows = [Row(**row) for row in json.loads(arguments.out.read_text())["rows"]]
    else:
        rows = measure(arguments)
    rates = fit(rows)
    for row in rows:
        print(f"{row} by the rates {row.by(rates):.2f} ms ({row.by(rates) / row.ms - 1:+.1%})")
    print(rates)
    if arguments.tiny:
        return
    if not arguments.fit:
        from bench.gpu.measure import save_figures

        kept = {"rates": asdict(rates), "rows": [row._asdict() for row in rows]}
        print(save_figures("rates", kept, arguments.out))
    CARDS.mkdir(exist_ok=True)
    (CARDS / f"{arguments.card}.json").write_text(json.dumps(asdict(rates), indent=2) + "\n")
    judge(judged(rows, rates))


if __name__ == "__main__":
    main()
