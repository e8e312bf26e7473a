"""What every gRPC server of radixkv is made of, and what its clients share with it.

Both sides: `limits.py` (what they agree on), `rpcs.py` (what can be called), `codec.py`,
`status.py` (how errors travel), `unreachable.py`, `tls.py`, `tracing.py`, `process.py`. A server:
`server.py` (its life: `CacheServer` and `RouterServer` stand on it), `front.py` (who may call, how
many at once, how errors are told), `call.py`, `auth.py`, `address.py` (where it may listen),
`serving.py` (health, reflection), `observer.py`, `metrics.py`, `logs.py`.
"""
