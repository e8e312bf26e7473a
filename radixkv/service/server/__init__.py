"""Who answers: `cache_server.py`. Each RPC: `handlers/`. What is kept beside the cache:
`leases.py`, `answers.py` (to requests that are repeated), `tenants.py`. `watching.py`: watchers.
"""
