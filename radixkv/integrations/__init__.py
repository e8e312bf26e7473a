"""Engines and model libraries that run on radixkv; each room here needs its own extra."""
