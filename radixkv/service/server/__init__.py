"""The server: `cache_server.py`. Each RPC: `handlers/`. Kept besides the cache: `leases.py`,
`idempotency.py` (replies to requests that are repeated), `tenants.py`. `watching.py`: watchers.
"""
