"""Logs of requests: their formats, their text in tokens, and the order of their requests."""
