"""Slots by borrower: the same as a scan of all slots says, at the cost of what is named."""

import numpy as np
import pytest

from radixkv.cache.borrowers import Borrowers

SIZE = 64


def scanned(borrowers, number):
    return np.flatnonzero(borrowers.of == number).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_a_random_history_agrees_with_a_scan(seed):
    rng = np.random.default_rng(seed)
    borrowers, live, aside = Borrowers(SIZE), [], []
    for _ in range(2_000):
        draw = rng.integers(6)
        free = scanned(borrowers, Borrowers.NONE)
        if draw == 0 and len(live) < 6:
            live.append(borrowers.new())
        elif draw <= 2 and live and free:
            some = rng.choice(free, rng.integers(1, len(free) + 1), replace=False)
            borrowers.lend(int(rng.choice(live)), some.astype(np.int32))
        elif draw == 3 and live:
            one = int(rng.choice(live))
            held = borrowers.slots_of(one)
            if len(held):
                some = rng.choice(held, rng.integers(1, len(held) + 1), replace=False)
                borrowers.end_loan(one, some.astype(np.int32))
        elif draw == 4 and live:
            aside.append(borrowers.set_aside(live.pop(rng.integers(len(live)))))
        elif draw == 5 and aside:
            borrowers.end_aside(aside.pop())
        for one in live:
            assert borrowers.slots_of(one).tolist() == scanned(borrowers, one)
        assert borrowers.num_loaned == np.count_nonzero(borrowers.of > 0)
        assert borrowers.num_aside == len(scanned(borrowers, Borrowers.ASIDE))


def test_a_long_history_of_one_borrower_is_not_kept():
    borrowers = Borrowers(SIZE)
    one = borrowers.new()
    slots = np.arange(8, dtype=np.int32)
    for _ in range(10_000):
        borrowers.lend(one, slots)
        borrowers.end_loan(one, slots)
    borrowers.lend(one, slots)
    assert sum(map(len, borrowers._lent[one])) < 2_000
    assert borrowers.slots_of(one).tolist() == slots.tolist()
