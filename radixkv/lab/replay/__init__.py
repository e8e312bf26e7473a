"""Requests of a log through caches: replays, curves and references."""
