"""10,000 requests of a Generator that are cancelled at random moments and sent again at once."""

import random
from typing import Any

from bench.report import Claim
from radixkv.integrations.transformers import Generator
from tests.support.cancelling import Cancelling
from tests.support.llamas import greedy, llama

ROUNDS, SEED = 10_000, 2026


def run() -> tuple[dict[str, Any], list[Claim]]:
    model = llama()
    generator = Generator(model, num_slots=64, max_batch=5, chunk_size=5)
    work = Cancelling(generator, greedy(model), random.Random(SEED))
    # Any other text than that of the model alone ends it.
    work.run(ROUNDS)
    stats = generator.cache.stats()
    held = stats.protected + stats.allocated + len(generator.cache.live_requests)
    figures = {
        "rounds": work.rounds, "strangers": work.strangers, "seed": SEED, "held_after": held,
        "violations": len(generator.cache.check_integrity()),
    }  # fmt: skip
    print(figures, flush=True)
    return figures, [
        Claim("held after", held, "at most", 0),
        Claim("violations", figures["violations"], "at most", 0),
        Claim("strangers compared", work.strangers, "at least", 1_000),
    ]
