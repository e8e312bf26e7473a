"""Both cores hand out the same tickets, store the same behind them, and refuse the same."""

import numpy as np
import pytest

from radixkv.errors import OutOfSlotsError
from radixkv.tree import DEFAULT, Namespace
from radixkv.tree.factory import new_tickets
from tests.differential.pair import Both, Pair, outcome, plain

pytest.importorskip("radixkv.kernels._core", reason="the native core is not built here")

SPACES = (DEFAULT, Namespace(salt="a"))


class Tickets(Both):
    """The same number of tickets of each core."""

    def __init__(self, num_tickets):
        super().__init__(*(new_tickets(num_tickets, core) for core in ("python", "native")))

    def call(self, name, *args):
        """The answer of both, which must be equal."""
        answers = [outcome(getattr(tickets, name), *args) for tickets in self.both]
        assert plain(answers[0]) == plain(answers[1]), name
        assert self.both[0].free_size == self.both[1].free_size
        return answers[0]


@pytest.mark.parametrize("num_tickets", [0, 1, 30, 400])
def test_any_tickets_are_taken_and_freed_alike(num_tickets):
    rng = np.random.default_rng(num_tickets)
    tickets, held = Tickets(num_tickets), []
    for _ in range(1500):
        if rng.random() < 0.6:
            taken = tickets.call("take", int(rng.integers(0, num_tickets // 4 + 2)))
            held += [] if taken is None else taken.tolist()
            continue
        rng.shuffle(held)
        at = int(rng.integers(0, len(held) + 1))
        going = held[at:]
        if rng.random() < 0.2:  # refused, and then all of them stay taken
            others = rng.integers(-1, num_tickets + 1, 2).tolist()
            tickets.call("free", [*going, *others, *going, num_tickets])
        assert tickets.call("free", np.array(going, np.int32)) is None or not going
        del held[at:]
        assert tickets.both[0].free_size == num_tickets - len(held)


@pytest.mark.parametrize("value", [-1, 1.5, None, "a", 2**31, True])
def test_what_is_no_number_of_tickets_is_refused_alike(value):
    python, native = (outcome(new_tickets, value, core) for core in ("python", "native"))
    assert isinstance(python, Exception)
    assert plain(python) == plain(native)
    Tickets(3).call("take", value)
    Tickets(3).call("free", value)
    Tickets(3).call("free", [value])


@pytest.mark.parametrize("policy", ["lru", "lfu"])
@pytest.mark.parametrize("page_size", [1, 4])
def test_trees_over_tickets_stay_equal(page_size, policy):
    """Inserts behind locked handles, with few tickets and under eviction."""
    rng = np.random.default_rng(page_size)
    pair, tickets, held = Pair(page_size, policy), Tickets(150), []
    outcomes = []
    for _ in range(1200):
        ids, space = rng.integers(0, 3, rng.integers(0, 40)).tolist(), SPACES[rng.integers(2)]
        handle = pair.call("match_handle", ids, space)
        pair.call("path_slices", handle, int(rng.integers(0, 5)))
        pair.call("path_slots", handle)
        pair.call("inc_lock_ref", handle)
        stored = pair.call(
            "insert_from", [*ids, *rng.integers(0, 3, 9).tolist()], tickets, space,
            priority=int(rng.integers(2)), chunked=bool(rng.integers(2)), after=handle,
        )  # fmt: skip
        outcomes.append(type(stored))
        if isinstance(stored, Exception):
            pair.call("dec_lock_ref", handle)
        else:
            held.append(handle)
        while held and (len(held) > 3 or rng.random() < 0.3):
            pair.call("dec_lock_ref", held.pop(int(rng.integers(len(held)))))
        if rng.random() < 0.5:
            pair.call("evict_to", tickets, int(rng.integers(0, 60)), int(rng.integers(0, 4)))
        assert pair.both[0].total_size == 150 - tickets.both[0].free_size
        assert tickets.both[0].free_size == tickets.both[1].free_size
        pair.check()
    assert {kind.__name__ for kind in outcomes} == {"InsertFromResult", OutOfSlotsError.__name__}


BAD = [
    {"tickets": None},
    {"tickets": "tickets"},
    {"token_ids": [1, -1]},
    {"token_ids": "ab"},
    {"token_ids": [2**40]},
    {"namespace": None},
    {"priority": "high"},
    {"token_ids": [1] * 60},
    {"token_ids": [*[1] * 60, -1]},
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_bad_arguments_are_refused_alike_and_change_nothing(bad):
    pair, tickets = Pair(1, "lru"), Tickets(50)
    pair.call("insert_from", [1, 2, 3], tickets)
    good = {"token_ids": [1, 2, 4], "tickets": tickets}
    assert isinstance(pair.call("insert_from", **(good | bad)), Exception)
    assert [one.free_size for one in tickets.both] == [47, 47]
    pair.check()


@pytest.mark.parametrize("bad", [(None, 1, 1), (0, -1, 1), (0, 1, -1), (0, "a", 1), (0, 1, None)])
def test_a_bad_eviction_is_refused_alike_and_evicts_nothing(bad):
    pair, tickets = Pair(1, "lru"), Tickets(50)
    pair.call("insert_from", [1, 2, 3], tickets)
    of, num_tokens, most = bad
    answer = pair.call("evict_to", None if of is None else tickets, num_tokens, most)
    assert isinstance(answer, Exception)
    assert pair.both[0].total_size == pair.both[1].total_size == 3
    assert [one.free_size for one in tickets.both] == [47, 47]


def test_tickets_of_another_kind_cannot_take_back_what_is_evicted():
    pair, tickets = Pair(1, "lru"), Tickets(50)
    pair.call("insert", [1, 2, 3], [7, 8, 9])
    assert isinstance(pair.call("evict_to", tickets, 2, 1), Exception)
