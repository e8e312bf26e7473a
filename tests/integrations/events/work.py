"""What an engine does to a cache whose events are followed."""

from radixkv import Namespace

ADAPTER = "0123456789abcdef0123456789abcdef"
SPACES = [Namespace(), Namespace(salt="a"), Namespace(salt="a", adapter=ADAPTER, extra_key="k")]


def work(rng, cache, steps, spaces=SPACES):
    """Requests that share, end and evict; what each asked for."""
    roots = [[rng.randrange(3) for _ in range(90)] for _ in range(4)]
    for _ in range(steps):
        base = rng.choice(roots)
        ids = base[: rng.randrange(1, 91)] + [rng.randrange(3) for _ in range(rng.randrange(1, 40))]
        compute(cache, ids, namespace=rng.choice(spaces))
        yield ids


def compute(cache, ids, **how):
    """A request that is computed whole."""
    cache.finish(cache.admit(ids, **how), up_to=len(ids))
