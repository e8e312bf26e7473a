"""Who asks: `clients.py`. What can be asked, and how answers are read: `calls.py`,
`lease_calls.py`, `admin_calls.py`, which `methods.py` makes methods of. `coalesce.py`: single
matches that go together. `lease.py`, `watch.py`: what lives longer than a call.
"""
