"""What two prompts have in common behind the place where they part."""

import numpy as np
import pytest

from radixkv.lab.report.overlap import NOTHING, WINDOW, Overlap, overlap


@pytest.fixture
def parts(rng):
    """Stretches of 40 tokens that have nothing in common."""
    return np.split(rng.permutation(400).astype(np.int32), 10)


def join(*parts):
    return np.concatenate(parts)


def test_text_behind_a_difference(parts):
    a, b, c, d, *_ = parts
    assert overlap(join(a, b, c), join(d[:7], b, c)) == Overlap(80, 40, 7, is_reordered=False)


def test_parts_in_another_order(parts):
    a, b, c, d, *_ = parts
    found = overlap(join(a, b, c, d), join(c, d, b, a))
    assert (found.tokens, found.is_reordered) == (160, True)


def test_a_part_that_stands_twice_is_in_no_other_order(parts):
    a, b, c, d, *_ = parts
    found = overlap(join(a, b, a, c, a, d), join(a, b, c, d))
    assert (found.tokens, found.is_reordered) == (240, False)


def test_a_small_part_elsewhere_is_no_other_order(parts):
    a, b, c, d, e, f, *_ = parts
    assert not overlap(join(a[:20], b, c, d, e, f), join(b, c, d, e, f, a[:20])).is_reordered


def test_short_stretches_do_not_count(parts):
    a, b, c, *_ = parts
    short = a[: WINDOW - 1]
    assert overlap(join(b, short), join(c, short)) == NOTHING
    assert overlap(a[: WINDOW - 1], a[: WINDOW - 1]) == NOTHING
    assert overlap(a[:WINDOW], a[:WINDOW]) == Overlap(WINDOW, 0, 0, is_reordered=False)


def test_a_token_is_not_counted_twice(parts):
    a, b, *_ = parts
    assert overlap(join(a, b), join(a[:20], a)).tokens == 40


def test_nothing_in_common(parts):
    assert overlap(parts[0], parts[1]) == NOTHING
