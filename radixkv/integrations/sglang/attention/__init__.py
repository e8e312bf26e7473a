"""Decode on a tree of what requests share, in SGLang: `--attention-backend radixkv`.

`offer.py` is how SGLang finds it, and what it refuses; `backend.py` SGLang's interface, `step.py`
one step over SGLang's pool, `rows.py` what the host knows of the requests' slots. It needs nothing
of the prefix cache: it works over SGLang's own, and over ours.
"""
