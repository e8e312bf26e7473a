"""What every gRPC server of radixkv consists of, and what its clients share with it.

Both sides: `limits.py` (what they agree on), `method_table.py` (every RPC), `codec.py`, `status.py`
(errors on the wire), `unreachable.py`, `tls.py`, `tracing.py`, `process.py`. A server: `server.py`
(start and end; `CacheServer` and `RouterServer` subclass it), `dispatch.py` (from a call to its
handler: caller, limits, errors), `call.py`, `auth.py`, `address.py` (where it may listen),
`serving.py` (health, reflection), `observer.py`, `metrics.py`, `logs.py`.
"""
