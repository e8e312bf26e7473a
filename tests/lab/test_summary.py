"""What a replay says as a whole, over time, by session, by namespace and in operations."""

import json

import numpy as np
import pytest

from radixkv import Namespace
from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import ListedLog
from radixkv.lab.replay import summary
from radixkv.lab.replay.models import SHAPES, shape_named
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.setting import Setting
from radixkv.lab.replay.sweep import combinations, sweep
from radixkv.memory.model import shape_of
from tests.lab.logs import ask


def test_the_whole():
    log = ask("abcd", "abcd", "xy")
    answer = summary.summary(replay(log, Setting(capacity=4, capacity_of="cache")))
    assert (answer["hit_rate"], answer["request_hit_rate"]) == (3 / 10, 1 / 3)
    assert (answer["prompt_tokens"], answer["cached_tokens"], answer["computed_tokens"]) == (
        10,
        3,
        7,
    )
    assert answer["evicted_tokens"] == 2
    assert answer["setting"]["capacity"] == 4
    json.dumps(answer)


def test_over_time():
    log = ask(*["abcd"] * 50)
    parts = summary.over_time(log, replay(log))
    assert len(parts) == 20
    assert sum(part.requests for part in parts) == 50
    assert sum(part.prompt_tokens for part in parts) == 200
    assert (parts[0].hit_rate, parts[-1].hit_rate) == (0.5, 0.75)
    assert [part.name for part in parts][:3] == [
        "from request 0", "from request 3", "from request 5"
    ]  # fmt: skip
    assert parts[0].start_s is None


def test_over_time_with_few_requests():
    log = ask("ab", "ab")
    assert [part.hit_rate for part in summary.over_time(log, replay(log))] == [0.0, 0.5]


def test_by_session():
    log = ask("abcd", "abcdef", "xy", "abcdefgh", sessions="uuvu")
    found = summary.by_session(log, replay(log))
    assert found["sessions"] == 2
    worst = found["most_computed"][0]
    assert (worst.name, worst.requests, worst.prompt_tokens, worst.cached_tokens) == (
        "u",
        3,
        18,
        10,
    )
    assert found["quartiles"] == pytest.approx([10 / 18 / 4, 10 / 18 / 2, 10 / 18 * 3 / 4])


def test_by_namespace():
    tenants = [Namespace(salt="b"), Namespace(), Namespace(salt="b")]
    parts = summary.by_namespace(replay(ask("abc", "abc", "abc", namespaces=tenants)))
    assert [(part.name, part.requests, part.hit_rate) for part in parts] == [
        ("b", 2, 2 / 6),
        ("(none)", 1, 0),
    ]


def test_an_empty_log():
    log = ListedLog([])
    found = replay(log)
    assert summary.summary(found)["hit_rate"] == 0
    assert summary.over_time(log, found) == []
    assert summary.by_session(log, found)["most_computed"] == []
    assert summary.by_namespace(found) == []


# ---- prefill ----

CONFIG = {"model_type": "llama", "num_attention_heads": 4, "hidden_size": 8,
          "num_hidden_layers": 2, "num_key_value_heads": 2, "intermediate_size": 16}  # fmt: skip
TINY = shape_of("tiny", CONFIG)


def test_operations_of_a_prefill_counted_one_by_one():
    projections = 8 * 8 + 2 * (8 * 4) + 8 * 8  # q, k and v, o
    per_token = 2 * 2 * (projections + 3 * 8 * 16)
    assert TINY.flops_per_token == per_token
    attended = sum(2 * 2 * 2 * 4 * 2 * (at + 1) for at in range(3, 7))  # scores and values
    assert TINY.prefill_flops(3, 7) == 4 * per_token + attended


def test_what_was_cached_and_what_was_not_add_up(rng):
    ends = rng.integers(1, 100_000, 50)
    middles = (ends * rng.random(50)).astype(int)
    parts = TINY.prefill_flops(0, middles) + TINY.prefill_flops(middles, ends)
    assert np.allclose(parts, TINY.prefill_flops(0, ends), rtol=1e-12)


def test_parameters_of_known_models():
    # Without embeddings: 6.98 billion of the 8.03, and 106 million of the 135.
    assert SHAPES["llama-3.1-8b"].flops_per_token / 2 == pytest.approx(6.98e9, rel=0.01)
    assert SHAPES["smollm2-135m"].flops_per_token / 2 == pytest.approx(106e6, rel=0.01)


def test_saved_prefill():
    found = replay(ask("abcd", "abcd"))
    saved = summary.saved_prefill(found, TINY, tflops=1e-9)
    assert saved["saved_flops"] == TINY.prefill_flops(0, 3)
    assert saved["prefill_flops"] == 2 * TINY.prefill_flops(0, 4)
    assert saved["saved_seconds"] == pytest.approx(saved["saved_flops"] / 1000)


def test_the_shape_of_a_config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    assert shape_named(str(path)).flops_per_token == TINY.flops_per_token
    experts = {"model_type": "qwen3_moe", "num_experts_per_tok": 2, "moe_intermediate_size": 8}
    path.write_text(json.dumps(CONFIG | experts))
    assert shape_named(str(path)).flops_per_token == TINY.flops_per_token


@pytest.mark.parametrize("content", [None, "{", "{}", "[]"])
def test_a_model_that_is_none(tmp_path, content):
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidArgumentError, match=r"config\.json|model type"):
        shape_named(str(path))


# ---- sweeps ----


def test_a_sweep_is_its_replays():
    log = ask("aaaa", "bbbb", "aaaa", "bbbb")
    settings = combinations(capacities=[4, None], policies=["lru", "mru"], page_sizes=[1, 2])
    assert len(settings) == 8
    heard = []
    found = sweep(log, settings, jobs=1, progress=heard.append)
    assert heard == [*range(1, 9)]
    for setting, answer in zip(settings, found, strict=True):
        assert answer["hit_rate"] == replay(log, setting).hit_rate


def test_a_sweep_on_two_processes():
    log = ask("aaaa", "bbbb", "aaaa")
    settings = combinations(capacities=[4, None])
    rates = [answer["hit_rate"] for answer in sweep(log, settings, jobs=2)]
    assert rates == [0, 3 / 12]
