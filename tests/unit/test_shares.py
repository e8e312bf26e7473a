"""What namespaces of one salt keep, whatever others need: reserves and caps."""

import pytest

from radixkv import Namespace, PrefixCache, new_tree
from radixkv.errors import InvalidArgumentError, InvalidNamespaceError, PromptTooLongError
from radixkv.tree import POLICIES
from radixkv.tree.shares import Share
from tests.support.trees import CORES

A, B, OTHER = Namespace(salt="a"), Namespace(salt="b"), Namespace(salt="other")
POLICY_NAMES = sorted(POLICIES)


@pytest.fixture(params=CORES)
def core(request):
    return request.param


def new_cache(core, shares, num_slots=100, **how):
    return PrefixCache(num_slots, core=core, shares=shares, **how)


def serve(cache, tokens, namespace):
    request = cache.admit(tokens, namespace)
    assert request is not None
    cache.finish(request, up_to=request.length)


def cached(cache, namespace):
    return sum(cache.tree.sizes_of(namespace)[:2])


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_what_is_within_a_reserve_is_not_evicted_for_others(core, policy):
    cache = new_cache(core, {"b": Share(reserve=30)}, policy=policy)
    serve(cache, range(30), B)
    for start in range(1000, 3000, 50):
        serve(cache, range(start, start + 50), A)
    assert cache.probe(range(30), B) == 30
    assert cache.check_integrity() == []


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_what_goes_beyond_a_reserve_is_evicted_as_any_other(core, policy):
    cache = new_cache(core, {"b": Share(reserve=32)}, policy=policy, page_size=4)
    for start in range(0, 160, 16):
        serve(cache, range(start, start + 16), B)
    assert cached(cache, B) == 100
    request = cache.admit(range(1000, 1068), A)
    assert request is not None
    assert cached(cache, B) == 32
    assert cache.admit([1], A) is None
    cache.abort(request)


def test_a_caller_may_evict_what_is_its_own_below_its_reserve(core):
    cache = new_cache(core, {"b": Share(reserve=90)})
    running = cache.admit(range(10), A)
    serve(cache, range(90), B)
    assert cache.admit([1], A) is None
    serve(cache, range(500, 590), B)
    assert cache.probe(range(500, 590), B) == 90
    cache.finish(running, up_to=running.length)


def test_a_cap_evicts_its_own_first_and_nothing_of_others(core):
    cache = new_cache(core, {"a": Share(cap=40)})
    serve(cache, range(60), OTHER)
    for start in range(1000, 2000, 20):
        serve(cache, range(start, start + 20), A)
        assert cached(cache, A) <= 40
    assert cache.probe(range(60), OTHER) == 60
    assert cached(cache, A) == 40


def test_a_cap_below_a_prompt_keeps_its_beginning(core):
    cache = new_cache(core, {"a": Share(cap=7)}, page_size=4, num_slots=100)
    serve(cache, range(20), A)
    assert cache.probe(range(20), A) == 4


def test_a_cap_leaves_what_is_locked_until_its_lock_ends(core):
    cache = new_cache(core, {"a": Share(cap=4)})
    request = cache.admit(range(10), A)
    cache.publish(request, 10)
    assert cached(cache, A) == 10
    cache.finish(request, up_to=request.length)
    assert cached(cache, A) == 4


def test_a_share_is_of_a_salt_whatever_else_a_namespace_has(core):
    cache = new_cache(core, {"b": Share(reserve=30, cap=30)})
    serve(cache, range(20), Namespace(salt="b", adapter="x"))
    serve(cache, range(20), Namespace(salt="b", extra_key="y"))
    assert cache.tree.share_sizes() == {"b": (30, 0)}
    serve(cache, range(1000, 1070), A)
    assert cache.tree.share_sizes() == {"b": (30, 0)}


def test_namespaces_without_a_salt_may_have_a_share(core):
    cache = new_cache(core, {None: Share(reserve=30)})
    serve(cache, range(30), Namespace())
    serve(cache, range(1000, 1070), A)
    serve(cache, range(2000, 2070), A)
    assert cache.probe(range(30)) == 30


def test_evict_leaves_reserves_and_says_how_much_it_evicted(core):
    cache = new_cache(core, {"b": Share(reserve=30)})
    serve(cache, range(30), B)
    serve(cache, range(1000, 1050), A)
    assert cache.tree.room_for() == 50
    assert cache.tree.room_for(B) == 80
    assert cache.evict(100) == 50
    assert cache.tree.evictable_size == 30


def test_slots_in_use_count_for_no_share(core):
    """A reserve is of what is cached: what others use now is not taken from them for it."""
    cache = new_cache(core, {"b": Share(reserve=40)})
    running = cache.admit(range(60), A)
    assert running is not None
    assert cache.admit(range(50), B) is None
    cache.abort(running)
    assert cache.admit(range(50), B) is not None


def test_a_request_that_the_reserves_of_others_leave_no_room_for_is_refused_at_once(core):
    cache = new_cache(core, {"b": Share(reserve=29), "a": Share(reserve=10)}, page_size=4)
    with pytest.raises(PromptTooLongError, match=r"56 tokens .*, of which 44 are reserved"):
        cache.admit(range(57), OTHER)
    with pytest.raises(PromptTooLongError, match="of 68 tokens or fewer"):
        cache.admit(range(69), A)
    request = cache.admit(range(68), A)
    for grow in (lambda: cache.extend(request, [1]), lambda: cache.reserve(request, 1)):
        with pytest.raises(PromptTooLongError):
            grow()
    assert cache.check_integrity() == []


def test_of_several_shares_that_may_give_the_policy_chooses(core):
    cache = new_cache(core, {"a": Share(reserve=0), "b": Share(reserve=0)})
    serve(cache, range(50), A)
    serve(cache, range(50), B)
    cache.match_prefix(range(50), A)
    serve(cache, range(2000, 2010), OTHER)
    assert (cached(cache, A), cached(cache, B)) == (50, 40)


def test_a_reset_keeps_the_shares(core):
    cache = new_cache(core, {"b": Share(reserve=30)})
    serve(cache, range(30), B)
    cache.reset()
    assert cache.tree.share_sizes() == {"b": (0, 0)}
    serve(cache, range(30), B)
    serve(cache, range(1000, 1070), OTHER)
    serve(cache, range(2000, 2070), OTHER)
    assert cache.probe(range(30), B) == 30


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"a": Share(60), "b": Share(41)}, "reserves together must be at most 100, .*; got 101"),
        ({"a": 3}, "shares must be a mapping of salts to Share; got 'a': 3"),
        ({3: Share()}, "shares must be a mapping of salts to Share; got 3: "),
        ([Share()], "shares must be a mapping of at most 65000 salts to Share; got "),
    ],
)
def test_shares_that_cannot_be_kept_are_refused(core, shares, message):
    with pytest.raises(InvalidArgumentError, match=message):
        new_cache(core, shares)


def test_reserves_must_fit_what_the_cache_may_keep(core):
    with pytest.raises(InvalidArgumentError, match="must be at most 50"):
        new_cache(core, {"a": Share(51)}, max_cached_tokens=50)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"reserve": -1}, "reserve must be an int from 0 to .*; got -1"),
        ({"reserve": 1.5}, "reserve must be an int from 0 to .*; got 1.5"),
        ({"cap": -1}, "cap must be an int from 0 to .*; got -1"),
        ({"reserve": 5, "cap": 4}, "cap must be at least the reserve, 5; got 4"),
    ],
)
def test_a_share_refuses_numbers_that_mean_nothing(how, message):
    with pytest.raises(InvalidArgumentError, match=message):
        Share(**how)


def test_a_tree_evicts_for_namespaces_only(core):
    tree = new_tree(core=core, shares={"a": Share()})
    for call in (tree.room_for, lambda space: tree.evict(1, space)):
        with pytest.raises(InvalidNamespaceError, match=r"must be a radixkv.Namespace; got 'a'"):
            call("a")
