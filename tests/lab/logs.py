"""Logs of prompts that are written as text."""

import numpy as np

from radixkv.lab.logs.requests import ListedLog, LoggedRequest
from radixkv.tree import DEFAULT


def ask(*prompts, sessions=None, outputs=(), namespaces=None) -> ListedLog:
    """A log of these prompts, each text whose characters are its tokens."""

    def tokens(text: str):
        return np.array([ord(letter) for letter in text], np.int32)

    sessions = sessions or "".join(chr(at) for at in range(len(prompts)))
    return ListedLog(
        LoggedRequest(
            at,
            sessions[at],
            sessions[:at].count(sessions[at]),
            None,
            tokens(prompt),
            tuple(map(tokens, outputs[at : at + 1])),
            namespaces[at] if namespaces else DEFAULT,
        )
        for at, prompt in enumerate(prompts)
    )


def random_log(rng, count=120):
    words = ["abab", "abba", "bbbb", "aaca", "c"]
    prompts = ["".join(rng.choice(words, rng.integers(1, 6))) for _ in range(count)]
    return ask(*prompts, outputs=tuple("".join(rng.choice(words, 1)) for _ in prompts))
