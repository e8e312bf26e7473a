"""Content spans: placeholder tokens stand for something, and share only with the same thing."""

import pickle

import numpy as np
import pytest

from radixkv import Namespace, new_tree
from radixkv.errors import InvalidContentError
from radixkv.tree import ContentSpan, Stored
from radixkv.tree.content import cut_content
from tests.support.trees import snapshot

IMG, END = 9, 8
CAT, DOG = b"cat", b"dog"


@pytest.fixture
def store(tree, fresh):
    def store(token_ids, content=(), **how):
        return tree.insert(token_ids, fresh(len(token_ids)), content=content, **how)

    return store


@pytest.fixture
def found(tree):
    """Tokens that match and that a probe says, which are the same."""

    def found(token_ids, content=()):
        length = tree.match_prefix(token_ids, content=content).length
        assert tree.probe(token_ids, content=content) == length
        return length

    return found


PICTURE = [5, IMG, IMG, IMG, 6]


def test_the_same_content_is_shared(store, found):
    store(PICTURE, [(1, 3, CAT)])
    assert found(PICTURE, [(1, 3, CAT)]) == 5
    assert store(PICTURE, [ContentSpan(1, 3, CAT)]).prefix_length == 5


def test_other_content_shares_the_text_before_it(store, found):
    store(PICTURE, [(1, 3, CAT)])
    assert found(PICTURE, [(1, 3, DOG)]) == 1
    assert store(PICTURE, [(1, 3, DOG)]).prefix_length == 1
    assert found(PICTURE, [(1, 3, CAT)]) == found(PICTURE, [(1, 3, DOG)]) == 5


def test_content_is_not_plain_text(store, found):
    store(PICTURE, [(1, 3, CAT)])
    assert found(PICTURE) == 1
    store(PICTURE)
    assert found(PICTURE) == 5
    assert found(PICTURE, [(1, 3, CAT)]) == 5
    assert found(PICTURE, [(1, 3, DOG)]) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"\x12\x34" * 16, b"\x99\x99" * 15 + b"\x12\x34"),  # equal low 16 bits
        (b"\x12\x34" * 16, b"\x12\x34" * 15 + b"\x99\x99"),  # equal but for the last
        (bytes(8), bytes(9)),
        (b"", b"\0"),
        (b"a" * 255 + b"1", b"a" * 255 + b"2"),
        ((65_536).to_bytes(8, "little"), (131_072).to_bytes(8, "little")),
    ],
)
def test_ids_are_compared_in_full(store, found, one, other):
    store(PICTURE, [(1, 3, one)])
    assert found(PICTURE, [(1, 3, one)]) == 5
    assert found(PICTURE, [(1, 3, other)]) == 1


def test_many_contents_are_all_kept_apart(tree, store, found):
    ids = [at.to_bytes(4, "little") for at in range(0, 2**22, 2**12)]
    for id_ in ids:
        assert store([IMG], [(0, 1, id_)]).prefix_length == 0
    assert tree.total_size == len(ids)
    assert all(found([IMG], [(0, 1, id_)]) == 1 for id_ in ids)


def test_the_empty_id_is_an_id(store, found):
    store(PICTURE, [(1, 3, b"")])
    assert found(PICTURE, [(1, 3, b"")]) == 5
    assert found(PICTURE) == 1


def test_content_may_fill_the_whole_prompt(store, found):
    store([IMG] * 4, [(0, 4, CAT)])
    assert found([IMG] * 4, [(0, 4, CAT)]) == 4
    assert found([IMG] * 4, [(0, 4, DOG)]) == found([IMG] * 4) == 0


def test_a_longer_span_of_the_same_content_shares_its_beginning(store, found):
    store(PICTURE, [(1, 3, CAT)])
    assert found([5, IMG, IMG, IMG, IMG, 6], [(1, 4, CAT)]) == 4
    assert found([5, IMG, IMG, 6], [(1, 2, CAT)]) == 3


def test_a_span_cut_by_the_end_of_the_key_shares_what_is_there(store, found):
    store(PICTURE, [(1, 3, CAT)])
    assert found(PICTURE[:3], [(1, 2, CAT)]) == 3
    assert found(PICTURE[:3], [(1, 2, DOG)]) == 1
    store([7, IMG, IMG], [(1, 2, CAT)])
    assert found([7, IMG, IMG, IMG, 6], [(1, 4 - 1, CAT)]) == 3


def test_adjacent_spans_of_one_content_are_not_one_long_span(store, found):
    twice, once = [(1, 2, CAT), (3, 2, CAT)], [(1, 4, CAT)]
    key = [5, IMG, IMG, IMG, IMG, 6]
    store(key, twice)
    assert found(key, twice) == 6
    assert found(key, once) == 3
    assert found(key, [(1, 1, CAT), (2, 3, CAT)]) == 2
    store(key, once)
    assert found(key, once) == found(key, twice) == 6


def test_a_span_that_begins_elsewhere_is_other_content(store, found):
    store([5, IMG, IMG, IMG], [(1, 3, CAT)])
    assert found([5, IMG, IMG, IMG], [(2, 2, CAT)]) == 1
    store([5, IMG, IMG, IMG], [(2, 2, CAT)])
    assert found([5, IMG, IMG, IMG], [(1, 3, CAT)]) == 4


def test_a_span_of_several_tokens_is_compared_token_by_token(store, found):
    span = [5, IMG, END, IMG, END, 6]
    store(span, [(1, 4, CAT)])
    assert found(span, [(1, 4, CAT)]) == 6
    assert found([5, IMG, END, END, IMG, 6], [(1, 4, CAT)]) == 3
    assert found([5, END, IMG, IMG, END, 6], [(1, 4, CAT)]) == 1
    assert found(span, [(1, 4, DOG)]) == 1


def test_text_between_spans_counts(store, found):
    spans = [(0, 2, CAT), (3, 2, DOG)]
    store([IMG, IMG, 5, IMG, IMG], spans)
    assert found([IMG, IMG, 5, IMG, IMG], spans) == 5
    assert found([IMG, IMG, 6, IMG, IMG], spans) == 2
    assert found([IMG, IMG, 5, IMG, IMG], [(0, 2, CAT), (3, 2, CAT)]) == 3
    assert found([IMG, IMG, 5, IMG, IMG], [(0, 2, DOG), (3, 2, CAT)]) == 0


def test_content_of_one_namespace_is_not_in_another(tree, store):
    store(PICTURE, [(1, 3, CAT)])
    assert tree.probe(PICTURE, Namespace(salt="s"), content=[(1, 3, CAT)]) == 0


def test_text_with_the_widest_ids_is_no_content(store, found):
    widest = [2**31 - 1, 2**31 - 2, 0]
    store(widest)
    assert found(widest) == 3
    assert found(widest, [(0, 3, CAT)]) == 0


def test_the_callers_ids_are_not_written_into(tree, fresh):
    ids = np.array(PICTURE, np.int32)
    tree.insert(ids, fresh(5), content=[(1, 3, CAT)])
    tree.match_prefix(ids, content=[(1, 3, DOG)])
    assert ids.tolist() == PICTURE


def test_a_span_across_pages_shares_whole_pages(core):
    tree = new_tree(4, core=core)
    key = [5, *[IMG] * 9, 6, 7]
    tree.insert(key, range(4, 16), content=[(1, 9, CAT)])
    for span, length in [((1, 9, CAT), 12), ((1, 9, DOG), 0), ((1, 5, CAT), 4), ((1, 7, CAT), 8)]:
        assert tree.probe(key, content=[span]) == length
    assert tree.evict(1).tolist() == [12, 13, 14, 15]
    assert tree.probe(key, content=[(1, 9, CAT)]) == 8
    assert tree.check_integrity() == []


def test_looking_for_content_stores_none_of_it(tree, store, found):
    store(PICTURE, [(1, 3, CAT)])
    before = pickle.dumps(tree)
    for at in range(100):
        assert found(PICTURE, [(1, 3, b"%d" % at)]) == 1
    assert len(pickle.dumps(tree)) <= len(before) + 64  # recency alone grew


def test_content_is_forgotten_with_its_last_token(core):
    """The tree's size does not grow with the contents that came and went."""
    tree = new_tree(core=core)
    sizes = []
    for at in range(60):
        id_ = b"%02d" % at * 128
        tree.insert([5, IMG, IMG], [3 * at, 3 * at + 1, 3 * at + 2], content=[(1, 2, id_)])
        tree.evict(2)
        assert tree.probe([5, IMG, IMG], content=[(1, 2, id_)]) == 1
        assert tree.check_integrity() == []
        sizes.append(len(pickle.dumps(tree)))
    assert max(sizes) - min(sizes) < 200


def test_content_stays_while_one_token_of_it_does(tree, store, found):
    store([5, IMG, IMG, IMG], [(1, 3, CAT)])
    store([7, IMG], [(1, 1, CAT)])
    assert tree.evict(2).tolist() == [3, 4]
    assert found([5, IMG, IMG, IMG], [(1, 3, CAT)]) == 2
    store([5, IMG, IMG, IMG], [(1, 3, CAT)])
    assert found([5, IMG, IMG, IMG], [(1, 3, CAT)]) == 4
    assert found([7, IMG], [(1, 1, CAT)]) == 2


def test_content_that_comes_back_matches_its_own_again(tree, store, found):
    store(PICTURE, [(1, 3, CAT)])
    tree.evict(10)
    store(PICTURE, [(1, 3, DOG)])
    assert found(PICTURE, [(1, 3, CAT)]) == 1
    store(PICTURE, [(1, 3, CAT)])
    assert found(PICTURE, [(1, 3, CAT)]) == found(PICTURE, [(1, 3, DOG)]) == 5


def test_content_that_is_cut_off_with_its_page_is_not_kept(core):
    tree = new_tree(4, core=core)
    before = len(pickle.dumps(tree))
    tree.insert([1, 2, 3], range(4, 7), content=[(0, 3, CAT * 80)])
    assert tree.num_nodes == 0
    assert tree.check_integrity() == []
    assert len(pickle.dumps(tree)) <= before + 64


def test_content_shows_as_negative_codes_that_name_it_within_an_epoch(tree, store):
    tree.track_changes()
    store(PICTURE, [(1, 3, CAT)])
    store([7, IMG, IMG], [(1, 2, CAT)])
    store([7, IMG, IMG], [(1, 2, DOG)])
    cat, again, dog = [c.codes.tolist() for c in tree.take_changes() if isinstance(c, Stored)]
    assert (cat[0], cat[4], again[0]) == (5, 6, 7)
    assert all(code < 0 for code in cat[1:4] + again[1:] + dog)
    assert cat[1:3] == again[1:]
    assert cat[2] == cat[3] != cat[1]
    assert not set(cat) & set(dog)


def test_a_code_is_never_used_for_other_content(tree, store):
    tree.track_changes()
    seen: set[int] = set()
    for at in range(50):
        store([IMG, IMG], [(0, 2, b"%d" % at)])
        (stored,) = tree.take_changes()
        assert not seen & set(stored.codes.tolist())
        seen |= set(stored.codes.tolist())
        tree.evict(2)
        tree.take_changes()


BAD = {
    "over the end": [(3, 3, CAT)],
    "far over the end": [(1, 2**40, CAT)],
    "behind the end": [(5, 1, CAT)],
    "before the beginning": [(-1, 2, CAT)],
    "empty": [(1, 0, CAT)],
    "of negative length": [(3, -2, CAT)],
    "overlapping": [(0, 3, CAT), (2, 2, CAT)],
    "out of order": [(3, 1, CAT), (0, 1, CAT)],
    "twice the same": [(1, 2, CAT), (1, 2, CAT)],
    "an id of text": [(1, 2, "cat")],
    "an id of None": [(1, 2, None)],
    "an id of int": [(1, 2, 7)],
    "an id of bytearray": [(1, 2, bytearray(b"cat"))],
    "a float start": [(1.0, 2, CAT)],
    "a text length": [(1, "2", CAT)],
    "two fields": [(1, 2)],
    "four fields": [(1, 2, CAT, CAT)],
    "no span": [7],
    "None in it": [None],
    "a good one and a bad one": [(0, 1, CAT), (1, 9, CAT)],
    "bytes": b"cat",
    "text": "cat",
    "an int": 7,
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_bad_content_is_refused_and_changes_nothing(tree, store, content):
    store(PICTURE, [(1, 3, CAT)])
    before = snapshot(tree)
    for call in (tree.match_prefix, tree.probe, lambda ids, content: store(ids, content)):
        with pytest.raises(InvalidContentError, match=r"^content"):
            call(PICTURE, content=content)
    assert snapshot(tree) == before
    assert tree.check_integrity() == []


def test_the_first_bad_span_is_named(tree):
    with pytest.raises(
        InvalidContentError, match=r"^content\[1\] must lie .* got 1 to 10"
    ) as caught:
        tree.match_prefix(PICTURE, content=[(0, 1, CAT), (1, 9, CAT), (7, 7, CAT)])
    assert caught.value.details["index"] == 1


@pytest.mark.parametrize("none", [(), []])
def test_no_content_is_plain_text(tree, store, none):
    store(PICTURE)
    assert tree.probe(PICTURE, content=none) == 5


def test_cut_content_keeps_the_beginning_of_a_span():
    spans = [(1, 3, CAT), (5, 2, DOG)]
    assert cut_content(spans, 10) == (ContentSpan(1, 3, CAT), ContentSpan(5, 2, DOG))
    assert cut_content(spans, 6) == (ContentSpan(1, 3, CAT), ContentSpan(5, 1, DOG))
    assert cut_content(spans, 5) == (ContentSpan(1, 3, CAT),)
    assert cut_content(spans, 2) == (ContentSpan(1, 1, CAT),)
    assert cut_content(spans, 1) == ()
    assert cut_content([], 3) == ()
