"""Findings on misses: grouped, biggest first, with the text at the place and what to change."""

import json
import lzma

import numpy as np
import pytest

from radixkv.lab.logs.requests import ListedLog, LoggedRequest, in_order
from radixkv.lab.logs.tokenizing import ByteTokenizer, load_tokenizer
from radixkv.lab.replay.setting import Setting
from radixkv.lab.report.findings import findings
from radixkv.lab.report.misses import explain
from tests.lab.logs import ask

BODY = "You are a helpful assistant of the library. Answer in short sentences. " * 4
TOOLS = [f'{{"name": "tool-{at}", "does": "{"abcdefgh"[at] * 60}"}}\n' for at in range(8)]


def findings_of(*prompts, **how):
    setting = Setting(**how.pop("setting", {}))
    log = ask(*prompts, **how)
    return findings(log, explain(log, setting), ByteTokenizer())


def biggest(*prompts, **how):
    return findings_of(*prompts, **how)[0]


def test_a_time_at_the_front():
    prompts = [f"It is 2026-01-{day} 12:{minute}. {BODY}" for day, minute in
               [(11, 10), (12, 31), (23, 45), (24, 59)]]  # fmt: skip
    found = biggest(*prompts)
    assert found.cause == "diverged"
    assert found.requests == 3
    assert "a date or time stands before text that stays the same" in found.advice
    assert found.movable_tokens > 0.9 * 3 * len(BODY)
    assert found.movable_in in {(1, 0), (2, 1), (3, 2), (3, 0), (2, 0), (3, 1)}
    assert found.before.endswith(" is 2026-01-")
    assert (found.here[0], found.there[0]) in {("2", "1"), ("4", "3")}


def test_an_id_at_the_front():
    found = biggest(*(f"request {each * 8} {BODY}" for each in ("3f", "a0", "b7")))
    assert "an id stands before text that stays the same" in found.advice


def test_something_else_at_the_front():
    found = biggest(*(f"Dear {name}, {BODY}" for name in ("Ann", "Bo", "Cy")))
    assert found.advice == "the same text stands behind what differs: put what differs last"


def test_tools_in_another_order(rng):
    shuffled = ["Tools:\n" + "".join(rng.permutation(TOOLS)) for _ in range(4)]
    assert "another order: sort them" in biggest(*shuffled).advice


def test_texts_that_have_nothing_in_common_get_no_advice():
    found = biggest("ab" + "c" * 100, "ab" + "d" * 100)
    assert (found.movable_tokens, found.advice) == (0, "")


def test_evictions_are_told_by_whose_pressure():
    whole = findings_of("aaaa", "bbbb", "aaaa", sessions="uvu", setting={"capacity": 4})
    found = next(each for each in whole if each.cause == "evicted")
    assert found.what == "evicted by requests of other sessions"
    assert (found.request, found.session, found.other, found.other_session) == (2, "u", 1, "v")
    assert (found.tokens, found.requests_ago) == (3, 1)
    assert "more room" in found.advice
    (own,) = (
        each
        for each in findings_of("aaaa", "bbbb", "aaaa", sessions="uuu", setting={"capacity": 4})
        if each.cause == "evicted"
    )
    assert own.what == "evicted by requests of its own session"
    long = next(
        each
        for each in findings_of("abcdef", "abcdef", setting={"capacity": 4, "capacity_of": "cache"})
        if each.cause == "evicted"
    )
    assert "its own prompt, which is longer than the room" in long.what


def test_answers_and_pages_are_reported():
    by_cause = {each.cause: each for each in findings_of("ab", "abcd", outputs=("cd", ""))}
    assert by_cause["answer"].advice == "cache outputs too"
    # Cached too, but not before the request that gave it has ended.
    running = findings_of(
        "ab", "abcd", outputs=("cd", ""), setting={"outputs": True, "in_flight": 2}
    )
    (found,) = (each for each in running if each.cause == "answer")
    assert (found.what, found.advice) == (
        "the answer to an earlier request, which was still running", ""
    )  # fmt: skip
    by_cause = {each.cause: each for each in findings_of("abcx", "abcy", setting={"page_size": 4})}
    assert by_cause["page"].advice == "a smaller page size"


def test_a_difference_inside_an_answer_shows_the_answer():
    found = findings_of("ab", "abcx", outputs=("cdef", ""), setting={"outputs": True})
    diverged = next(each for each in found if each.cause == "diverged")
    assert (diverged.before, diverged.here, diverged.there) == ("abc", "x", "def")


def test_without_a_tokenizer_texts_are_token_ids():
    log = ask("abc", "abd")
    found = findings(log, explain(log))
    assert ("97 98", "100", "99") in {(each.before, each.here, each.there) for each in found}


def test_the_most_are_reported(rng):
    log = ask(*("".join(rng.choice(list("abc"), 50)) for _ in range(99)))
    every = findings(log, explain(log), most=1000)
    assert [each.tokens for each in every] == sorted((each.tokens for each in every), reverse=True)
    assert findings(log, explain(log), most=3) == every[:3]
    assert sum(each.tokens for each in every) == explain(log).computed_tokens


def test_an_order_other_than_the_files_names_requests_by_the_file():
    log = in_order(ask("ab", "abcd", "xy", sessions="uuv"), "interleave-2")
    appended = next(each for each in findings(log, explain(log)) if each.cause == "appended")
    assert (appended.request, appended.other) == (1, 0)


def test_an_empty_log():
    log = ListedLog([])
    assert findings(log, explain(log)) == []


def test_a_million_tokens_at_once():
    tokens = np.arange(1_000_000, dtype=np.int32)
    log = ListedLog(LoggedRequest(at, "s", at, None, np.roll(tokens, at), ()) for at in (0, 1))
    found = findings(log, explain(log))
    assert sum(each.tokens for each in found) == 2_000_000


# ---- against the text of real traces ----

TRACES = [
    ("mtbench_judge", "file", {}),
    ("lmcache_magagent", "interleave-16", {"capacity": 16_384}),
    ("hotpot_react", "interleave-16", {"capacity": 4_096, "page_size": 16}),
]


@pytest.mark.parametrize(("name", "order", "setting"), TRACES)
def test_findings_agree_with_the_text(traces, read_trace, name, order, setting):
    with lzma.open(traces / f"{name}.jsonl.xz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    prompts = [row["prompt"] for row in rows]
    tokenizer = load_tokenizer(traces / "tokenizer_smollm2.json.xz")
    log = read_trace(name)
    ordered = in_order(log, order)
    explained = explain(ordered, Setting(**setting))
    assert sum(explained.totals().values()) == explained.computed_tokens
    found = findings(ordered, explained, tokenizer)
    for each in found:
        mine = prompts[each.request]
        until = tokenizer.decode(log[each.request].token_ids[: each.start])
        assert mine.startswith(until)
        assert until.endswith(each.before)
        assert mine[len(until) :].startswith(each.here)
        if each.movable_in:
            alike, earlier = (prompts[at] for at in each.movable_in)
            pairs = enumerate(zip(alike, earlier, strict=False))
            behind = next(at for at, (mine, theirs) in pairs if mine != theirs)
            stretches = (alike[at : at + 40] for at in range(behind, len(alike) - 40, 10))
            assert any(stretch in earlier for stretch in stretches)
        if each.cause == "diverged":
            other = prompts[each.other]
            assert other.startswith(until)
            assert other[len(until) :].startswith(each.there)
            assert each.here != each.there
        elif each.cause == "appended":
            answered = [prompts[each.other] + text for text in ["", *rows[each.other]["outputs"]]]
            assert any(text.startswith(until) for text in answered)
            assert until.startswith(prompts[each.other])
        elif each.cause == "evicted":
            lost = tokenizer.decode(log[each.request].token_ids[: each.end])
            before = ordered.places[: [*ordered.places].index(each.other)]
            assert any(prompts[at].startswith(lost) for at in before)
    assert len(found) >= 6
