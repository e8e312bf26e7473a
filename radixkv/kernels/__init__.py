"""Native code: `_core`, `_router` and `_planner`, built from `kernels/`, and the kernels of `gpu/`.

The package works without any of it; `radixkv.tree` and `radixkv.router` choose their core.
"""
