"""Pins and slots on loan: what is held of a cache by others than its own requests."""

import contextlib
import tracemalloc
from unittest.mock import MagicMock

import numpy as np
import pytest

from radixkv import DEFAULT, Namespace, PrefixCache, errors
from radixkv.cache.loans import Insert

A = Namespace(salt="a")
ME, OTHER = 1, 2


@pytest.fixture
def cache(new_cache):
    return with_borrowers(new_cache(16))


def with_borrowers(cache):
    assert [cache.loans.new_borrower() for _ in range(2)] == [ME, OTHER]
    return cache


def ints(*values: int):
    return np.array(values, np.int32)


def lend(cache, n, borrower=ME):
    found = cache.loans.allocate(borrower, n)
    assert found is not None
    return found[0]


def put(cache, token_ids, borrower=ME, *, pin=None, keep=False, namespace=DEFAULT, content=()):
    """Store tokens with slots fresh on loan; the slots too."""
    slots = lend(cache, len(token_ids), borrower)
    insert = Insert(np.array(token_ids, np.int32), slots, content, pin, keep)
    (done,) = cache.loans.store(borrower, [insert], namespace)
    return done, slots


def sizes(cache):
    stats = cache.stats()
    return (stats.free, stats.allocated, stats.evictable, stats.protected, stats.waiting)


READS = {
    "num_pins": lambda loans: loans.num_pins,
    "slots_of": lambda loans: loans.slots_of(ME),
    "aside_size": lambda loans: loans.aside_size,
    "num_loaned": lambda loans: loans.num_loaned,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_is_read_is_read_under_the_lock(cache, read):
    """Another thread's pin in the middle of it would break the count of a set."""
    cache.transactions.lock = lock = MagicMock()
    read(cache.loans)
    assert lock.__enter__.called
    assert lock.__exit__.called


def test_slots_on_loan_are_private_until_given_back(cache):
    slots = lend(cache, 5)
    assert sizes(cache) == (11, 5, 0, 0, 0)
    assert cache.loans.slots_of(ME).tolist() == sorted(slots.tolist())
    assert cache.check_integrity() == []
    cache.loans.give_back(ME, slots[:2])
    cache.loans.give_back(ME, slots[2:])
    assert sizes(cache) == (16, 0, 0, 0, 0)


def test_lending_evicts_what_it_must_and_says_so(cache):
    put(cache, range(10))
    assert cache.loans.allocate(ME, 8)[1] == 2
    assert cache.loans.allocate(ME, 17) is None
    assert sizes(cache) == (0, 8, 8, 0, 0)


def test_a_pin_keeps_what_it_matched_and_no_more(cache):
    put(cache, [1, 2, 3, 4, 5, 6])
    pin = cache.loans.pin([1, 2, 3, 9])
    assert pin.token_ids.tolist() == [1, 2, 3]
    assert cache.evict(16) == 3
    assert cache.match_prefix([1, 2, 3, 4]).slots.tolist() == pin.slots.tolist()
    assert cache.check_integrity() == []
    cache.loans.unpin(pin)
    cache.loans.unpin(pin)
    assert cache.evict(16) == 3


def test_a_pin_on_nothing_is_a_place_to_store_below(cache):
    pin = cache.loans.pin([1, 2], A)
    assert len(pin.slots) == 0
    done, slots = put(cache, [1, 2], pin=pin, keep=True, namespace=A)
    assert (done.existing_length, done.cached_length) == (0, 2)
    assert done.pin.slots.tolist() == slots.tolist()
    assert sizes(cache) == (14, 0, 0, 2, 0)
    assert pin not in cache.loans.pins


def test_storing_below_a_pin_takes_only_what_comes_after_it(cache):
    put(cache, [1, 2, 3])
    pin = cache.loans.pin([1, 2, 3])
    done, _ = put(cache, [4, 5], pin=pin)
    assert (done.existing_length, done.cached_length, done.pin) == (3, 5, None)
    assert cache.match_prefix([1, 2, 3, 4, 5]).length == 5
    assert sizes(cache) == (11, 0, 5, 0, 0)


def test_the_second_borrower_gets_the_slots_that_replace_its_own(cache):
    first = cache.loans.pin([1, 2, 3, 4])
    put(cache, [1, 2, 3], OTHER)
    done, slots = put(cache, [1, 2, 3, 4], pin=first, keep=True)
    assert (done.existing_length, done.cached_length) == (3, 4)
    assert done.replacements.tolist() == cache.match_prefix([1, 2, 3]).slots.tolist()
    assert done.pin.slots.tolist() == [*done.replacements.tolist(), int(slots[3])]
    assert cache.loans.slots_of(ME).tolist() == sorted(slots[:3].tolist()), "nothing is freed"
    assert cache.check_integrity() == []
    cache.loans.give_back(ME, slots[:3])
    assert sizes(cache) == (12, 0, 0, 4, 0)


def test_a_batch_is_one_revision(cache):
    slots = lend(cache, 4)
    revision = cache.events.revision
    cache.loans.store(
        ME,
        [Insert(ints(1, 2), slots[:2]), Insert(ints(1, 3), slots[2:])],
    )
    assert cache.events.revision == revision + 1
    assert cache.loans.slots_of(ME).tolist() == [slots[2]], "the second 1 was there already"


REFUSED = {
    "a slot that is free": (lambda s: [Insert(ints(1), ints(16))], errors.SlotNotAllocatedError),
    "a slot of another": (lambda s: [Insert(ints(1), s["other"])], errors.SlotNotAllocatedError),
    "a cached slot": (lambda s: [Insert(ints(1), s["cached"])], errors.SlotNotAllocatedError),
    "no slot of the pool": (lambda s: [Insert(ints(1), ints(99))], errors.InvalidSlotsError),
    "slot 0": (lambda s: [Insert(ints(1), ints(0))], errors.InvalidSlotsError),
    "fewer slots than tokens": (
        lambda s: [Insert(ints(1, 2), s["mine"][:1])],
        errors.InvalidSlotsError,
    ),
    "one slot twice": (
        lambda s: [Insert(ints(1), s["mine"][:1]), Insert(ints(2), s["mine"][:1])],
        errors.SlotNotAllocatedError,
    ),
    "a pin that was dropped": (
        lambda s: [Insert(ints(1), s["mine"][:1], pin=s["dropped"])],
        errors.StaleHandleError,
    ),
    "one pin twice": (
        lambda s: [Insert(ints(n), s["mine"][n : n + 1], pin=s["pin"]) for n in (0, 1)],
        errors.InvalidArgumentError,
    ),
    "a negative token": (
        lambda s: [Insert(ints(-1), s["mine"][:1])],
        errors.InvalidTokensError,
    ),
    "a pin of another namespace": (
        lambda s: [Insert(ints(1), s["mine"][:1], pin=s["elsewhere"])],
        errors.InvalidNamespaceError,
    ),
}


@pytest.mark.parametrize(("inserts", "error"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_changes_nothing(cache, inserts, error):
    cached = put(cache, [7])[1]
    dropped = cache.loans.pin([7])
    cache.loans.unpin(dropped)
    state = {
        "mine": lend(cache, 3),
        "other": lend(cache, 1, OTHER),
        "cached": cached,
        "dropped": dropped,
        "pin": cache.loans.pin([7]),
        "elsewhere": cache.loans.pin([7], A),
    }
    before = (sizes(cache), cache.events.revision)
    good = Insert(ints(5), state["mine"][2:])
    with pytest.raises(error):
        cache.loans.store(ME, [good, *inserts(state)])
    assert (sizes(cache), cache.events.revision) == before
    assert cache.match_prefix([5]).length == 0


@pytest.mark.parametrize("slots", [[16], [99], [0]])
def test_only_what_is_on_loan_is_given_back(cache, slots):
    mine, other = lend(cache, 2), lend(cache, 1, OTHER)
    for wrong in (slots, other, [*mine.tolist(), mine[0]]):
        with pytest.raises((errors.SlotNotAllocatedError, errors.InvalidSlotsError)):
            cache.loans.give_back(ME, wrong)
    assert sizes(cache)[1] == 3


def test_whole_pages(new_cache):
    cache = with_borrowers(new_cache(16, page_size=4))
    slots = lend(cache, 5)
    assert len(slots) == 8
    with pytest.raises(errors.InvalidSlotsError, match="in a row"):
        cache.loans.store(ME, [Insert(ints(*range(8)), slots[::-1])])
    with pytest.raises(errors.InvalidSlotsError, match="whole pages"):
        cache.loans.give_back(ME, slots[:3])
    (done,) = cache.loans.store(ME, [Insert(ints(*range(6)), slots[:6], keep=True)])
    assert (done.cached_length, len(done.pin.slots)) == (4, 4)
    assert cache.loans.slots_of(ME).tolist() == slots[4:].tolist()
    assert sizes(cache) == (8, 4, 0, 4, 0)


def test_content_goes_on_below_a_pin(cache):
    x, y = ((1, 2, b"x"),), ((0, 1, b"x"),)
    put(cache, [5, 9, 9], content=x)
    pin = cache.loans.pin([5, 9], content=((1, 1, b"x"),))
    assert len(pin.slots) == 2
    done, _ = put(cache, [9, 6], pin=pin, content=y)
    assert done.existing_length == 3, "the third is the same content, not another beginning of it"
    assert cache.match_prefix([5, 9, 9, 6], content=x).length == 4


# ---- ends ----


def test_what_a_borrower_leaves_goes_to_no_one_until_it_is_freed(cache):
    put(cache, [1, 2])
    pin, slots = cache.loans.pin([1, 2]), lend(cache, 3)
    aside = cache.loans.set_aside(ME, [pin])
    assert aside.slots.tolist() == sorted(slots.tolist())
    assert sizes(cache) == (11, 0, 2, 0, 3)
    assert cache.check_integrity() == []
    with pytest.raises(errors.SlotNotAllocatedError):
        cache.loans.give_back(ME, slots)
    assert cache.loans.allocate(OTHER, 14) is None
    cache.loans.free_aside(aside)
    assert sizes(cache) == (14, 0, 2, 0, 0)


def test_a_reset_is_refused_while_something_is_pinned(cache):
    put(cache, [1, 2])
    pin = cache.loans.pin([1])
    with pytest.raises(errors.LiveRequestsError, match="got 0 live requests and 1 pins") as caught:
        cache.reset()
    assert caught.value.details == {"live_requests": 0, "pins": 1}
    cache.loans.unpin(pin)
    cache.reset()


@pytest.mark.parametrize(
    "forget", [lambda c: c.reset(force=True), lambda c: c.set_weight_version(5)]
)
def test_what_is_pinned_in_a_forgotten_tree_stays_unused_until_it_is_dropped(cache, forget):
    put(cache, [1, 2, 3])
    pins = [cache.loans.pin([1, 2]), cache.loans.pin([1])]
    slots = lend(cache, 2)
    forget(cache)
    assert sizes(cache) == (12, 2, 0, 0, 2)
    assert cache.check_integrity() == []
    with pytest.raises(errors.StaleHandleError):
        cache.loans.store(ME, [Insert(ints(5), slots[:1], pin=pins[0])])
    aside = cache.loans.set_aside(ME, [pins[0]])
    assert sizes(cache) == (12, 0, 0, 0, 4)
    assert cache.check_integrity() == []
    cache.loans.free_aside(aside)
    assert sizes(cache) == (15, 0, 0, 0, 1)
    cache.loans.unpin(pins[1])
    assert sizes(cache) == (16, 0, 0, 0, 0)


def test_stale_weights_are_neither_pinned_nor_stored(cache):
    cache.set_weight_version(2)
    old = Namespace(weight_version=1)
    with pytest.raises(errors.StaleWeightsError):
        cache.loans.pin([1], old)
    slots = lend(cache, 1)
    with pytest.raises(errors.StaleWeightsError):
        cache.loans.store(ME, [Insert(ints(1), slots)], old)
    assert sizes(cache) == (15, 1, 0, 0, 0)


def test_a_lost_loan_is_found(new_cache):
    """The checks see what loans hold: a slot too many or too few, a pin that was not counted."""
    cache = with_borrowers(PrefixCache(16))
    put(cache, [1, 2])
    slots, pin = lend(cache, 2), cache.loans.pin([1, 2])
    cache.loans.borrower_of[slots[0]] = 0
    assert any("I1" in line for line in cache.check_integrity())
    cache.loans.borrower_of[slots[0]] = ME
    cache.loans.pins.discard(pin)
    assert any("I3" in line for line in cache.check_integrity())


def test_random_borrowers_while_an_engine_runs(new_cache, page_size, rng):
    cache = with_borrowers(new_cache(16 * page_size, page_size=page_size))
    pins: dict[int, list] = {ME: [], OTHER: []}
    aside: list = []
    for _ in range(300):
        who = int(rng.integers(1, 3))
        prompt = rng.integers(0, 2, rng.integers(1, 4 * page_size)).astype(np.int32)
        match rng.integers(9):
            case 0:
                request = cache.admit(prompt)
                if request is not None:
                    cache.finish(request, up_to=request.length)
            case 1:
                pins[who].append(cache.loans.pin(prompt))
            case 2 if pins[who]:
                cache.loans.unpin(pins[who].pop())
            case 3 if cache.loans.pins or len(cache.loans.slots_of(who)):
                aside.append(cache.loans.set_aside(who, pins[who]))
                pins[who] = []
                assert cache.loans.new_borrower() == who
            case 4 if aside:
                cache.loans.free_aside(aside.pop())
            case 5 if rng.integers(6) == 0:
                cache.reset(force=True)
            case 6:
                own = cache.loans.slots_of(who)
                if len(own) >= page_size:
                    cache.loans.give_back(who, own[:page_size])
            case _:
                found = cache.loans.allocate(who, len(prompt))
                pin = cache.loans.pin(prompt[: rng.integers(len(prompt) + 1)])
                if found is None:
                    cache.loans.unpin(pin)
                else:
                    below = prompt[len(pin.slots) :]
                    insert = Insert(below, found[0][: len(below)], (), pin, bool(rng.integers(2)))
                    (done,) = cache.loans.store(who, [insert])
                    pins[who] += [done.pin] if done.pin else []
        assert cache.check_integrity() == []
    aside += [cache.loans.set_aside(who, pins[who]) for who in pins]
    for each in aside:
        cache.loans.free_aside(each)
    stats = cache.stats()
    assert (stats.allocated, stats.protected, stats.waiting) == (0, 0, 0)


def test_a_pin_costs_the_same_whatever_its_length(core):
    """A pin of a million tokens took 8 MB; 65,536 of them may be held."""
    cache = PrefixCache(50_000, core=core)
    cache.finish(done := cache.admit(list(range(50_000))), up_to=done.length)
    prompt = np.arange(50_000, dtype=np.int32)
    cache.loans.pin(prompt)
    tracemalloc.start()
    pins = [cache.loans.pin(prompt) for _ in range(64)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / len(pins) < 2_000
    assert {pin.length for pin in pins} == {50_000}


def test_tokens_are_moved_below_a_pin_one_at_a_time(core):
    cache = PrefixCache(20_100, core=core)
    cache.finish(done := cache.admit(list(range(20_000))), up_to=done.length)
    pin = cache.loans.pin(np.arange(20_000, dtype=np.int32))
    borrower = cache.loans.new_borrower()
    slots, _ = cache.loans.allocate(borrower, 100)
    for at in range(100):
        insert = Insert(np.array([70_000 + at], np.int32), slots[at : at + 1], pin=pin, keep=True)
        (done,) = cache.loans.store(borrower, [insert])
        assert (done.existing_length, done.cached_length) == (20_000 + at, 20_001 + at)
        pin = done.pin
    whole = [*range(20_000), *range(70_000, 70_100)]
    assert pin.token_ids.tolist() == whole
    assert cache.probe(whole) == 20_100
    assert cache.check_integrity() == []


@pytest.mark.parametrize("borrower", [0, -1, 2**31, 1.5, True, "a", None])
def test_a_borrower_is_a_number_and_nothing_is_taken_for_another(cache, borrower):
    with pytest.raises(errors.InvalidArgumentError, match="borrower must be an int from 1 to"):
        cache.loans.allocate(borrower, 4)
    assert cache.free_size == 16
    assert cache.check_integrity() == []


def test_a_borrower_that_ended_twice_is_given_out_once(cache):
    lend(cache, 2, ME)
    assert len(cache.loans.set_aside(ME, []).slots) == 2
    assert len(cache.loans.set_aside(ME, []).slots) == 0
    cache.loans.set_aside(99, [])
    assert len({cache.loans.new_borrower() for _ in range(3)} | {OTHER}) == 4


def test_slots_given_back_while_a_call_reads_are_not_stored(cache):
    first, second = lend(cache, 2), lend(cache, 2)

    class GivesBack(list):
        def __iter__(self):
            cache.loans.give_back(ME, first)
            return iter([3, 4])

        __array__ = None

    inserts = [Insert(ints(1, 2), first), Insert(GivesBack([3, 4]), second)]
    with contextlib.suppress(errors.RadixKVError):
        cache.loans.store(ME, inserts)
    assert cache.check_integrity() == []
