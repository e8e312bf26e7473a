"""SGLang with our tree as its prefix cache: `--radix-cache-backend radixkv`.

SGLang finds `register` by the entry point `sglang.srt.plugins`. `cache.py` is the cache,
`numbers.py` what its tree holds in place of slots, `keys.py` how SGLang's keys become ours,
`order.py` the order of the scheduling policy dfs-weight, `blocks.py` the events, `surface.py` what
is used of SGLang and what is refused. Nothing here is imported before SGLang asks for it.
"""

from radixkv.integrations.sglang.plugin import NAME, register

__all__ = ["NAME", "register"]
