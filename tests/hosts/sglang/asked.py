"""What an engine answers to a plan of `ask`, and what is in its rows.

SGLang checks between steps that no slot is lost or held twice, and raises.
"""

import json
import subprocess
import sys

from tests.hosts.sglang.engines import environment

STRICT = {"SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1"}


def run(model, folder, backend, page_size, num_slots, plan, **more):
    """What each request got: length, cached tokens, answer."""
    out, log = folder / f"{backend}.json", folder / f"{backend}.log"
    arguments = map(str, (model, backend, page_size, num_slots, out, plan))
    with log.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "tests.hosts.sglang.ask", *arguments],
            env=environment(**STRICT, **more),
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=1200,
        )
    assert done.returncode == 0, log.read_text()[-4000:]
    return json.loads(out.read_text())


def answers(rows):
    return [answer for _, _, answer in rows]


def num_answers(rows):
    return len(set(map(tuple, answers(rows))))


def cached(rows):
    return sum(cached for _, cached, _ in rows)


def computed(rows):
    return sum(length - cached + len(answer) for length, cached, answer in rows)
