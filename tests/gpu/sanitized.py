"""Small batches through the kernels of tree decode, for compute-sanitizer; no test of pytest's."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from radixkv.attention import get_backend
from tests.support.attention_batches import RAGGED, Batch, difference, random_tree, shared

BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn
BATCHES = [
    ((32, 8, 128), BF16, 1, shared((8, 512), (2, 256), own=77)),
    ((32, 8, 128), BF16, 16, shared((20, 512), (2, 256), own=33, requests=40)),
    ((9, 3, 64), BF16, 1, shared((8, 300), own=5)),
    ((32, 8, 128), E4M3, 1, shared((20, 512), (4, 256), own=33, requests=40)),
    ((16, 8, 256), BF16, 1, shared((40, 512), own=33, requests=40)),
    ((16, 8, 192), BF16, 16, shared((40, 512), own=33, requests=40)),
    # More units than blocks of the grid, wide and narrow; of one and of two warpgroups' rows.
    ((32, 32, 128), BF16, 1, shared((100, 256), (20, 256), own=20, requests=100)),
]


def batch_of(heads, dtype, page_size, paths):
    return Batch(
        *paths, heads=heads[0], kv_heads=heads[1], dim=heads[2], dtype=dtype,
        page_size=page_size, device="cuda",
    )  # fmt: skip


def main():
    for heads, dtype, page_size, paths in BATCHES:
        batch = batch_of(heads, dtype, page_size, paths)
        tree = get_backend("tree", batch.pool, mode="tree", q_heads=heads[0])
        print(heads, dtype, page_size, difference(batch.run(tree), batch.expected()))
        new = torch.randn(len(batch.rows), *heads[1:], device="cuda").bfloat16()
        tree.write(0, new, new)
    paths, _ = shared((8, 512), (2, 256), own=77)
    batch = batch_of((32, 8, 128), BF16, 1, (paths, [1, 2, 3, 4, 5, 6, 7, 8]))
    tree = get_backend("tree", batch.pool, mode="tree", q_heads=32)
    print("several tokens", difference(batch.run(tree), batch.expected()))
    for heads, paths in ((16, random_tree(0, requests=200)), (128, shared((8, 300), own=77))):
        batch = Batch(
            *paths, heads=heads, kv_heads=1, dim=512, rope=64, dtype=torch.bfloat16, device="cuda"
        )
        for name, options in (("tree", {"mode": "tree", "q_heads": heads}), ("triton", {})):
            found = batch.run(get_backend(name, batch.pool, **options), scale=0.07)
            print("latents", name, heads, difference(found, batch.expected(scale=0.07)))
    batch = batch_of((32, 8, 128), BF16, 1, RAGGED)
    print("triton", difference(batch.run(get_backend("triton", batch.pool)), batch.expected()))
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
