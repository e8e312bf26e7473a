"""Measurements on a CUDA card, one script a claim: `python -m bench.gpu.NAME`."""
