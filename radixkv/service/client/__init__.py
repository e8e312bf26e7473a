"""The clients: `clients.py` of a cache, `router_clients.py` of a router; both on `connection.py`.

Requests, and how responses are read: `calls.py`, `lease_calls.py`, `admin_calls.py`,
`router_calls.py`; `methods.py` makes methods of them. `coalesce.py`: single matches in one call.
`lease.py`, `watch.py`: what lives longer than a call.
"""
