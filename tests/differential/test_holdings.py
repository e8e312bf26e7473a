"""The two cores of the router's index side by side, on histories that may be nonsense."""

from array import array
from typing import Any

import numpy as np
import pytest

from radixkv.errors import CoreUnavailableError, InvalidTokensError
from radixkv.router.factory import new_holdings
from radixkv.router.holdings import Holdings


class Pair:
    """Both cores; every call goes to both, and their answers must be equal."""

    def __init__(self) -> None:
        self.both: tuple[Holdings, ...] = tuple(new_holdings(core) for core in ("python", "native"))

    def call(self, name: str, *args: Any) -> Any:
        python, native = (_plain(_outcome(getattr(core, name), *args)) for core in self.both)
        assert python == native, (name, args)
        return python

    def check(self, holders: list[int]) -> None:
        for core in self.both:
            assert core.check_integrity() == []
        python, native = (_seen(core, holders) for core in self.both)
        assert python == native


def _outcome(call: Any, *args: Any) -> Any:
    try:
        return call(*args)
    except (IndexError, KeyError):
        return "not there"
    except InvalidTokensError as error:
        return str(error), error.details


def _plain(answer: Any) -> Any:
    return answer.tolist() if isinstance(answer, np.ndarray) else answer


def _seen(core: Holdings, holders: list[int]) -> Any:
    """All that can be seen; the order of runs is each core's own."""
    held = [
        sorted((run.run, run.parent_run, run.parent_offset, run.codes.tolist()) for run in runs)
        for runs in map(core.runs, holders)
    ]
    return held, [core.num_tokens(h) for h in holders], core.num_nodes, core.total_size


@pytest.fixture
def pair():
    try:
        return Pair()
    except CoreUnavailableError:
        pytest.skip("the native core is not built here")


def random_history(pair, rng, steps, page_size):
    """Stores and trims of few runs and tokens, so that much of it makes no sense."""
    roots = {number: [core.add_root() for core in pair.both] for number in range(2)}
    holders = [pair.call("add_holder", size) for size in (1, page_size) * 2]
    size_of = dict(zip(holders, (1, page_size) * 2, strict=True))
    accepted = {True: 0, False: 0}
    for _ in range(steps):
        holder = int(rng.choice(holders))
        run, parent = (int(n) for n in rng.integers(0, 12, 2))
        # Whole pages, and now and then not.
        unit = size_of[holder] if rng.random() < 0.9 else 1
        offset, keep = (int(n) * unit for n in rng.integers(0, 6, 2))
        draw = rng.random()
        if draw < 0.6:
            low = -3 if rng.random() < 0.2 else 0
            codes = rng.integers(low, 3, unit * rng.integers(0, 6)).astype(np.int32)
            if rng.random() < 0.5:
                parent = 0
            at = roots[int(rng.integers(2))]
            answers = {
                core.store(holder, run, parent, offset, codes, root)
                for core, root in zip(pair.both, at, strict=True)
            }
            assert len(answers) == 1
            accepted[answers.pop()] += 1
        elif draw < 0.95:
            accepted[pair.call("trim", holder, run, keep)] += 1
        elif draw < 0.97:
            pair.call("clear", holder)
        else:
            pair.call("remove_holder", holder)
            holders.remove(holder)
            holders.append(pair.call("add_holder", size_of[holder]))
        asked = rng.integers(0, 3, 2 * page_size + 6).tolist()
        found = [core.lengths(asked, at[i]).tolist() for i, core in enumerate(pair.both)
                 for at in roots.values()]  # fmt: skip
        assert found[: len(found) // 2] == found[len(found) // 2 :]
        pair.check(holders)
    return accepted


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("seed", range(8))
def test_histories_that_may_be_nonsense(pair, seed, page_size):
    accepted = random_history(pair, np.random.default_rng(seed), 250, page_size)
    assert min(accepted.values()) > 20, "both what is and what is not"


def test_what_is_not_there(pair):
    holder, codes = pair.call("add_holder"), np.array([1], np.int32)
    root = pair.call("add_root")
    for call in (
        ("remove_holder", 9), ("clear", 9), ("runs", 9), ("num_tokens", 9), ("trim", 9, 1, 0),
        ("store", 9, 1, 0, 0, codes, root), ("store", holder, 1, 0, 0, codes, 99),
        ("lengths", [1], 99), ("remove_root", 99), ("is_empty_root", 99),
    ):  # fmt: skip
        assert pair.call(*call) == "not there", call
    assert pair.call("store", holder, 1, 0, 0, codes, root)
    assert pair.call("remove_root", root) == "not there", "it is not empty"


def test_codes_that_name_content_are_no_prompt(pair):
    """Not even where they equal what the tree has there."""
    holder, root = pair.call("add_holder"), pair.call("add_root")
    codes = np.array([1, -1, -1, 2], np.int32)
    assert pair.call("store", holder, 1, 0, 0, codes, root)
    for prompt in (codes, codes[:2], codes.astype(np.int64), codes.tobytes(), codes.tolist()):
        message, _ = pair.call("lengths", prompt, root)
        assert "-1" in message
    assert pair.call("lengths", codes[:1], root) == [1]


PROMPTS = [
    [1, 2, 3], (1, 2), b"", b"\x01\x00\x00\x00", bytearray(8), np.arange(3), np.arange(3.0),
    np.array([1, -1], np.int32), np.array([1, 2**40]), [1, -1], [1, "2"], "12", 5, None,
    memoryview(array("i", [0, 1, 2])), np.arange(6, dtype=np.int32)[::2], [True], [2**31],
    np.array([[1]]), [], np.array([], np.int32), b"123",
]  # fmt: skip


@pytest.mark.parametrize("prompt", PROMPTS, ids=range(len(PROMPTS)))
def test_prompts_of_every_kind(pair, prompt):
    holder, root = pair.call("add_holder"), pair.call("add_root")
    pair.call("store", holder, 1, 0, 0, np.array([0, 1, 2], np.int32), root)
    pair.call("lengths", prompt, root)


@pytest.mark.parametrize(
    "codes", [b"\x01\x00\x00\x00", np.array([1, 2]), np.arange(6, dtype=np.int32)[::2], [1, 2]]
)
def test_codes_of_every_kind(pair, codes):
    holder, root = pair.call("add_holder"), pair.call("add_root")
    assert pair.call("store", holder, 1, 0, 0, codes, root)
    pair.check([holder])
