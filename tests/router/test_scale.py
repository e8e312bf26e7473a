"""Many workers, deep and long: nothing recurses, sets of workers have no bound."""

import numpy as np

from tests.support.holders import codes


def stored(holdings, holder, *args):
    assert holdings.store(holder, *args)


def test_two_hundred_workers(holdings, rng):
    """Each holds so much of one prompt, alone or on a branch of its own."""
    root, prompt = holdings.add_root(), np.arange(1_000, dtype=np.int32)
    holders = [holdings.add_holder() for _ in range(200)]
    kept = rng.integers(1, 1_001, 200).tolist()
    for holder, keep in zip(holders, kept, strict=True):
        stored(holdings, holder, 1, 0, 0, prompt[:keep], root)
        stored(holdings, holder, 2, 1, min(keep, 500), codes(5_000 + holder), root)
    assert holdings.lengths(prompt, root).tolist() == kept
    assert holdings.total_size == max(kept) + 200
    expected = [min(keep, 500) for keep in kept]
    for holder, keep in zip(holders, expected, strict=True):
        assert holdings.trim(holder, 1, keep)
    assert holdings.lengths(prompt, root).tolist() == expected
    for holder in holders[::2]:
        holdings.remove_holder(holder)
    assert holdings.lengths(prompt, root).tolist()[1::2] == expected[1::2]
    assert holdings.lengths(prompt, root)[::2].max() == 0
    assert holdings.add_holder() == 0
    for holder in (0, *holders[1::2]):
        holdings.remove_holder(holder)
    assert (holdings.total_size, holdings.num_nodes) == (0, 0)


def test_a_chain_of_runs(holdings):
    root, depth = holdings.add_root(), 2_000
    one, other = holdings.add_holder(), holdings.add_holder()
    for holder in (one, other):
        for at in range(depth):
            stored(holdings, holder, at + 1, at, min(at, 1), codes(at), root)
    assert holdings.num_nodes == 1, "what is held alike is one node"
    prompt = np.arange(depth, dtype=np.int32)
    assert holdings.lengths(prompt, root).tolist() == [depth, depth]
    assert len(holdings.runs(one)) == depth
    for at in range(depth, depth // 2, -1):
        assert holdings.trim(one, at, 0)
    assert holdings.lengths(prompt, root).tolist() == [depth // 2, depth]
    holdings.clear(other)
    assert holdings.total_size == depth // 2


def test_a_comb_of_branches(holdings):
    """One long run, from every token of which a branch leaves."""
    root, length = holdings.add_root(), 2_000
    holder = holdings.add_holder()
    spine = np.arange(length, dtype=np.int32)
    stored(holdings, holder, 1, 0, 0, spine, root)
    for at in range(1, length):
        stored(holdings, holder, at + 1, 1, at, codes(9_999), root)
    assert holdings.num_nodes == 2 * length - 1
    asked = np.append(spine[: length // 2], 9_999)
    assert holdings.lengths(asked, root).tolist() == [length // 2 + 1]
    for at in range(1, length):
        assert holdings.trim(holder, at + 1, 0)
    assert holdings.num_nodes == 1, "without its branches it is one node again"


def test_a_long_run_that_goes_token_by_token(holdings):
    root, length = holdings.add_root(), 3_000
    one, other = holdings.add_holder(), holdings.add_holder()
    for holder in (one, other):
        stored(holdings, holder, 1, 0, 0, np.arange(length, dtype=np.int32), root)
    for keep in range(length - 1, -1, -1):
        assert holdings.trim(one, 1, keep)
    assert holdings.lengths(np.arange(length), root).tolist() == [0, length]
    for keep in range(length - 1, -1, -1):
        assert holdings.trim(other, 1, keep)
    assert (holdings.total_size, holdings.num_nodes) == (0, 0)


def test_memory_grows_by_bits_with_workers_and_shrinks_when_they_leave(holdings):
    """Sets of holders grew twofold with each 64 workers, also where no more sets were needed."""
    root, nodes = holdings.add_root(), 2_000
    first = holdings.add_holder()
    for at in range(nodes):
        stored(holdings, first, at + 1, 0, 0, codes(at), root)
    narrow = holdings.num_bytes
    others = [holdings.add_holder() for _ in range(2_047)]
    # A word is 64 workers; sets and words have half and a quarter to spare.
    assert holdings.num_bytes < narrow + 2 * nodes * 2_048 // 8 + 2_048 * 200
    for holder in others:
        holdings.remove_holder(holder)
    assert holdings.num_bytes < narrow + 2_048 * 200
    for at in range(nodes):
        assert holdings.trim(first, at + 1, 0)


def test_ten_thousand_workers(holdings):
    root, many = holdings.add_root(), 10_000
    if holdings.core == "python":
        many = 500  # each new number is looked for from the first on
    holders = [holdings.add_holder() for _ in range(many)]
    for holder in (0, many // 2, many - 1):
        stored(holdings, holder, 1, 0, 0, codes(1, 2, holder), root)
    lengths = holdings.lengths([1, 2, many - 1], root)
    assert len(lengths) == many
    assert {at: int(lengths[at]) for at in lengths.nonzero()[0].tolist()} == {
        0: 2, many // 2: 2, many - 1: 3
    }  # fmt: skip
    assert holdings.num_bytes < 64 * 2**20
    for holder in holders:
        holdings.remove_holder(holder)
    assert holdings.total_size == 0
