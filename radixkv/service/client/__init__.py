"""The clients: `clients.py`. Requests, and how responses are read: `calls.py`, `lease_calls.py`,
`admin_calls.py`; `methods.py` makes methods of them. `coalesce.py`: single matches in one call.
`lease.py`, `watch.py`: what lives longer than a call.
"""
