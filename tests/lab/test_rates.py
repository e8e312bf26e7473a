"""Rates fitted to steps that were measured, and those of the cards that are shipped."""

import pytest

from bench.gpu.rates import Row, fit, judged
from radixkv.errors import InvalidArgumentError
from radixkv.lab.replay.rates import Rates, rates_of

CARD = Rates(
    step_ms=7, prefill_us=25, decode_us=30, kv_ns=25, pair_ns=0.9, launch_ms=30, chunk=8192
)
# Cached tokens and new ones; chats and the K/V of each.
PROMPTS = [(0, 640), (512, 128), (0, 2560), (0, 9000), (16384, 2048)]
CHATS = [(64, 512), (8, 4096), (32, 4096), (8, 600)]


def prompt(kind, before, new):
    return Row(kind, new, new * before + new * (new + 1) // 2, 0, 0, 0.0)


def chats(kind, count, each):
    return Row(kind, 0, 0, count, count * each, 0.0)


SHAPES = [
    *(prompt("prompt", *each) for each in PROMPTS),
    *(chats("apart", *each) for each in CHATS),
    prompt("serving", 0, 8448),
    chats("serving", 64, 8256),
]


def rows_of(card):
    return [row._replace(ms=row.by(card)) for row in SHAPES]


def test_a_fit_finds_the_rates_that_made_the_steps():
    found = fit(rows_of(CARD))
    for name in ("step_ms", "prefill_us", "decode_us", "kv_ns", "pair_ns", "launch_ms"):
        assert getattr(found, name) == pytest.approx(getattr(CARD, name), rel=0.01), name


def test_what_is_held_out_changes_no_fit_and_is_judged():
    rows = rows_of(CARD)
    slower = [row._replace(ms=row.ms * 1.3) if row.is_held_out else row for row in rows]
    assert fit(slower) == fit(rows)
    assert [claim.is_met for claim in judged(rows, fit(rows))] == [True, True]
    assert [claim.is_met for claim in judged(slower, fit(slower))] == [False, False]


def test_no_rate_is_below_zero():
    rows = rows_of(CARD)
    odd = [row._replace(ms=row.ms - 0.05 * row.decoding) for row in rows]
    assert fit(odd).decode_us == 0


def test_an_unknown_card_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"card must be one of .*; got 'abacus'"):
        rates_of("abacus")
