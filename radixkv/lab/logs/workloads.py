"""Made-up workloads of known structure, for a look at the lab without a log.

    chat         a few system prompts; each turn sends the whole dialogue so far
    few-shot     tasks, each with its examples at the front of every question
    agents       one system prompt with tools; each step appends an answer and what a tool returned;
                 every fourth agent lists the tools in an order of its own
    tree-search  one problem a session, whose partial solutions are extended level by level
    retrieval    instructions, documents by relevance, the question last

Lengths are drawn around typical ones, arrivals are a Poisson process; all from one seed. Tokens are
drawn at random, so that what is shared is shared by construction and nothing else is.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from radixkv.arguments import at_least, between
from radixkv.arrays import Int32Array
from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.packed import write_packed
from radixkv.lab.logs.requests import ListedLog, LoggedRequest

VOCABULARY = 50_000
MOST_REQUESTS = 1_000_000  # all are in memory at once
_SESSIONS_A_SECOND = 0.5
_SECONDS_A_TURN = 8.0


@dataclass(frozen=True, slots=True)
class Turn:
    """What a session sends, and what it is answered."""

    prompt: Int32Array
    output: Int32Array


Session: TypeAlias = Iterator[Turn]


class Author:
    """Draws texts; the same seed draws the same."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def text(self, mean: float) -> Int32Array:
        """Fresh tokens, around `mean` of them, at least one."""
        length = max(1, int(self.rng.gamma(4, mean / 4)))
        return self.rng.integers(0, VOCABULARY, length, dtype=np.int32)

    def texts(self, count: int, mean: float) -> list[Int32Array]:
        return [self.text(mean) for _ in range(count)]

    def favourite(self, texts: list[Int32Array]) -> Int32Array:
        """One of them, the first ones more often than the last ones (Zipf)."""
        weights = 1 / np.arange(1, len(texts) + 1)
        return texts[self.rng.choice(len(texts), p=weights / weights.sum())]


def chat(author: Author) -> Iterator[Session]:
    systems = author.texts(4, 600)

    def session() -> Session:
        dialogue = author.favourite(systems)
        for _ in range(author.rng.geometric(0.25)):
            dialogue = np.concatenate([dialogue, author.text(60)])
            answer = author.text(180)
            yield Turn(dialogue, answer)
            dialogue = np.concatenate([dialogue, answer])

    while True:
        yield session()


def few_shot(author: Author) -> Iterator[Session]:
    tasks = author.texts(20, 1200)

    def session() -> Session:
        examples = author.favourite(tasks)
        for _ in range(50):
            yield Turn(np.concatenate([examples, author.text(70)]), author.text(100))

    while True:
        yield session()


def agents(author: Author) -> Iterator[Session]:
    instructions, tools = author.text(400), author.texts(12, 90)

    def session(number: int) -> Session:
        listed = tools if number % 4 else [tools[at] for at in author.rng.permutation(len(tools))]
        history = np.concatenate([instructions, *listed, author.text(150)])
        for _ in range(author.rng.integers(5, 25)):
            step = author.text(90)
            yield Turn(history, step)
            history = np.concatenate([history, step, author.text(350)])

    number = 0
    while True:
        yield session(number)
        number += 1


def tree_search(author: Author) -> Iterator[Session]:
    instructions = author.text(300)

    def session() -> Session:
        level = [np.concatenate([instructions, author.text(120)])]
        for _ in range(4):
            grown = []
            for prompt in level:
                thoughts = author.texts(3, 60)
                yield Turn(prompt, thoughts[0])
                grown += [np.concatenate([prompt, thought]) for thought in thoughts]
            level = grown[:: max(1, len(grown) // 5)]  # the best ones

    while True:
        yield session()


def retrieval(author: Author) -> Iterator[Session]:
    instructions, documents = author.text(200), author.texts(300, 350)

    def session() -> Session:
        found = [author.favourite(documents) for _ in range(4)]
        yield Turn(np.concatenate([instructions, *found, author.text(40)]), author.text(150))

    while True:
        yield session()


WORKLOADS: dict[str, Callable[[Author], Iterator[Session]]] = {
    "chat": chat,
    "few-shot": few_shot,
    "agents": agents,
    "tree-search": tree_search,
    "retrieval": retrieval,
}


def generate(name: str, *, requests: int, seed: int = 0) -> ListedLog:
    """`requests` requests of the workload, by time. Raises InvalidArgumentError.

    >>> generate("few-shot", requests=3, seed=7).lengths.tolist()
    [1088, 1183, 1102]
    """
    if name not in WORKLOADS:
        raise InvalidArgumentError(
            f"workload must be one of {', '.join(WORKLOADS)}; got {name!r}", workload=name
        )
    between(1, MOST_REQUESTS, requests=requests)
    author = Author(at_least(0, seed=seed))
    drawn = sorted(_timed(WORKLOADS[name](author), author, requests), key=lambda turn: turn[0])
    counts: dict[str, int] = {}
    made = []
    for id, (ts, session, turn) in enumerate(drawn):
        number = counts[session] = counts.get(session, -1) + 1
        made.append(LoggedRequest(id, session, number, ts, turn.prompt, (turn.output,)))
    return ListedLog(made)


def save(log: ListedLog, path: Path) -> None:
    """Write it as a log of token ids, packed as the file's name says (.xz, .gz, .zst)."""
    write_packed(path, map(_line, log))


def _timed(
    sessions: Iterator[Session], author: Author, requests: int
) -> Iterator[tuple[float, str, Turn]]:
    left, start = requests, 0.0
    for number, session in enumerate(sessions):
        start += author.rng.exponential(1 / _SESSIONS_A_SECOND)
        ts = start
        for turn in session:
            yield round(ts, 3), f"session {number}", turn
            ts += author.rng.exponential(_SECONDS_A_TURN)
            left -= 1
            if not left:
                return


def _line(request: LoggedRequest) -> bytes:
    row = {
        "session": request.session,
        "ts": request.ts,
        "prompt": request.token_ids.tolist(),
        "outputs": [output.tolist() for output in request.outputs],
    }
    return json.dumps(row).encode() + b"\n"
