"""The server: `cache_server.py`. Each RPC: `handlers/`. What is kept beside the cache: `leases.py`,
`idempotency.py` (replies to requests that are repeated), `tenants.py`. `watching.py`: watchers.
"""
