"""Asks one engine what a test wants to know: python ask.py FOLDER BACKEND PAGE_SIZE SLOTS OUT PLAN

BACKEND: of the cache, and behind a "+" that of attention if it is not SGLang's default.
PLAN: the names of functions here, joined by "+"; everything is forgotten between two of them.
OUT gets for each a row a request: length of its prompt, cached tokens, the answer.
"""

import json
import random
import sys
from pathlib import Path

from tests.hosts.models import VOCABULARY
from tests.hosts.sglang.engines import arguments
from tests.support.waiting import wait_until


class Asker:
    """An engine and what it answered since the last flush."""

    def __init__(self, engine):
        self.engine, self.rows = engine, []

    def flush(self):
        """Forget everything; the rows until now."""
        # Refused until the last request has ended, which is after its answer has come.
        wait_until(lambda: self.engine.flush_cache().success)
        rows, self.rows = self.rows, []
        return rows

    def ask(self, prompts, n=8, salts=None):
        """Several prompts at once; their answers."""
        more = {} if salts is None else {"cache_salt": salts}
        answers = self.engine.generate(
            input_ids=prompts,
            sampling_params={"max_new_tokens": n, "temperature": 0, "ignore_eos": True},
            **more,
        )
        for ids, answer in zip(prompts, answers, strict=True):
            cached = answer["meta_info"]["cached_tokens"]
            self.rows.append([len(ids), cached, answer["output_ids"]])
        return [list(answer["output_ids"]) for answer in answers]


def tokens(rng, n):
    return [rng.randrange(VOCABULARY) for _ in range(n)]


def chats(asker):
    """24 requests: four chats of three turns, six long prompts that evict, the chats again."""
    rng = random.Random(7)
    system = tokens(rng, 200)
    turns = [system + tokens(rng, 20 + 7 * i) for i in range(4)]
    for _ in range(3):
        answers = asker.ask(turns)
        turns = [c + a + tokens(rng, 13) for c, a in zip(turns, answers, strict=True)]
    asker.ask([tokens(rng, 400) for _ in range(6)], 2)
    asker.ask(turns)
    asker.ask(turns[:2])


def tenants(asker):
    """200 requests of four tenants, of three lengths, with prefixes that they would share if salts
    did not part them."""
    rng = random.Random(8)
    shared = [tokens(rng, n) for n in (20, 60, 150)]
    for _ in range(50):
        prompts = [rng.choice(shared) + tokens(rng, rng.randrange(1, 30)) for _ in range(4)]
        asker.ask(prompts, 2, [f"tenant {i}" for i in range(4)])


def main(folder, backend, page_size, num_slots, out, plan):
    from sglang.srt.entrypoints.engine import Engine

    backend, _, attention = backend.partition("+")
    backend = None if backend == "sglang" else backend
    more = {"attention_backend": attention} if attention else {}
    asked = arguments(folder, backend, page_size=int(page_size), num_slots=int(num_slots), **more)
    asker, plans, rows = Asker(Engine(**asked)), {"chats": chats, "tenants": tenants}, {}
    for name in plan.split("+"):
        plans[name](asker)
        rows[name] = asker.flush()
    assert asker.engine.get_server_info()["radix_cache_backend"] == backend
    asker.engine.shutdown()
    Path(out).write_text(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
