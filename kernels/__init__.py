"""Native code: `tree/` (C++, built as `radixkv.kernels._core`) and `gpu/`.

The package works without any of it; `radixkv.tree` chooses the core.
"""
