"""Native code: `tree/` and `router/` (C++, built as `_core` and `_router`) and `gpu/`.

The package works without any of it; `radixkv.tree` and `radixkv.router` choose their core.
"""
