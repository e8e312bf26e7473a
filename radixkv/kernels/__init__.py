"""Native code: `_core`, `_router` and `_planner`, built from `kernels/`, and the kernels of `gpu/`.

The package works without any of it: each room's `factory.py` chooses a core, and an attention
backend is used where it runs.
"""
