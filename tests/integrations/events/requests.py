"""Requests that fill a cache."""


def work(rng, cache, steps, spaces):
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
