"""K and V in fp8, and heads of 192 and 256: the tree's kernels, against what serves them flat.

    python -m bench.gpu.formats    into bench/results/gpu/formats.json

Each is a CUDA graph of one layer, its cache cleared by reading. Errors are against the float32
reference over K and V as they are stored. Flat is fa3 with its schedule in the call for fp8, and
Triton for the other heads, which not every build of fa3 has.
"""

from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench.gpu.cases import Case
from bench.gpu.measure import captured, clean_samples, require_card, save_figures, where_to
from bench.report import Claim, judge
from radixkv.attention import AttentionBatch, get_backend
from radixkv.memory.kv_pool import MHATokenToKVPool


class Format(NamedTuple):
    """at_most_us: what is claimed for the tree."""

    name: str
    case: Case
    dtype: str
    flat: str
    at_most_us: float


FORMATS = (
    Format("fp8, 32/8 heads, 64 x (16,384 + 256)",
           Case((32, 8, 128), 64, ((64, 16384), (1, 256))), "fp8_e4m3", "fa3", 65),
    Format("heads of 256, 16/8, 64 x (4,096 + 256)",
           Case((16, 8, 256), 64, ((64, 4096), (1, 256))), "bfloat16", "triton", 62),
    Format("heads of 192, 16/8, 64 x (4,096 + 256)",
           Case((16, 8, 192), 64, ((64, 4096), (1, 256))), "bfloat16", "triton", 46),
)  # fmt: skip
MOST_ERROR = 0.004


def measured(each: Format) -> dict[str, Any]:
    torch.manual_seed(0)
    heads, kv_heads, dim = each.case.heads
    rows = each.case.rows()
    slots = max(int(row.max()) for row in rows)
    pool = MHATokenToKVPool(slots, 1, kv_heads, dim, each.dtype, "cuda")
    for values in (pool.k(0), pool.v(0)):
        values.copy_(torch.randn(values.shape, device="cuda").to(values.dtype))
    q = torch.randn(len(rows), heads, dim, device="cuda").bfloat16()
    expected = _run("reference", pool, rows, q.float())()
    samples, errors = {}, {}
    for name, options in (("tree", {"mode": "tree", "q_heads": heads}), (each.flat, {})):
        run = _run(name, pool, rows, q, **options)
        errors[name] = round(float((run().float() - expected).norm() / expected.norm()), 5)
        samples[name] = clean_samples(captured(run))
    return {
        "format": each.name,
        "us": {name: round(median(times), 1) for name, times in samples.items()},
        "error": errors,
        "samples_us": samples,
    }


def _run(name: str, pool: MHATokenToKVPool, rows: Any, q: Tensor, **options: Any) -> Any:
    backend = get_backend(name, pool, **options)
    backend.plan(AttentionBatch(rows, [1] * len(rows)))
    return partial(backend.run, q, 0)


def main() -> None:
    arguments_out = where_to("formats", __doc__)
    require_card()
    rows, claims = [], []
    for each in FORMATS:
        row = measured(each)
        rows.append(row)
        print(row["format"], row["us"], row["error"], flush=True)
        claims.append(Claim(f"{each.name}: us", row["us"]["tree"], "at most", each.at_most_us))
        claims.append(Claim(f"{each.name}: error", row["error"]["tree"], "at most", MOST_ERROR))
    print(save_figures("formats", {"rows": rows}, arguments_out))
    judge(claims)


if __name__ == "__main__":
    main()
