import json
import random
from dataclasses import FrozenInstanceError

import pytest

from radixkv.errors import InvalidArgumentError
from radixkv.memory.plan import (
    DTYPE_BYTES,
    bytes_per_token,
    length_mix,
    parse_memory,
    plan_capacity,
    read_lengths,
)

SHAPE = {"layers": 28, "kv_heads": 4, "head_dim": 128, "dtype": "bfloat16"}
QUESTION = {**SHAPE, "memory": "55GiB", "context": 3000, "reserve": 32768, "page_size": 16}


@pytest.fixture
def mix():
    numbers = random.Random(0)
    return [numbers.randint(100, 2000) + numbers.randint(20, 1500) for _ in range(200)]


def test_a_budget_holds_far_more_requests_paged_than_reserved():
    answer = plan_capacity(**QUESTION)
    assert answer.bytes_per_token == 57_344
    assert (answer.requests_paged, answer.requests_reserved) == (342, 31)
    assert answer.lengths is None


def test_a_mix_of_lengths_uses_its_slots_better_the_smaller_the_page(mix):
    answer = length_mix(mix, reserve=4096, page_sizes=[1, 16, 64, 256])
    assert f"{answer.reserved_used_fraction:.1%}" == "46.2%"
    used = {use.page_size: f"{use.used_fraction:.1%}" for use in answer.paged}
    assert used == {1: "100.0%", 16: "99.6%", 64: "98.3%", 256: "93.2%"}
    assert answer.paged[0].wasted_tokens == 0
    assert answer.paged[1].wasted_tokens == sum(-length % 16 for length in mix)


def test_a_plan_compares_its_own_page_size_too(mix):
    answer = plan_capacity(**{**QUESTION, "page_size": 32}, lengths=mix)
    assert [use.page_size for use in answer.lengths.paged] == [1, 16, 32, 64, 256]
    assert (answer.lengths.count, answer.lengths.tokens) == (200, sum(mix))


def test_the_planned_pool_takes_the_memory_and_no_more():
    answer = plan_capacity(**{**QUESTION, "memory": 57_344 * 100, "context": 10, "page_size": 16})
    assert answer.num_slots == 80  # six whole pages, of which one is padding
    assert answer.requests_paged == 5
    assert (answer.num_slots + 16) * answer.bytes_per_token <= answer.memory_bytes


def test_the_longest_context_is_the_context_unless_said():
    answer = plan_capacity(**{**QUESTION, "reserve": None, "page_size": 1})
    assert answer.reserve == answer.context == 3000


def test_a_budget_may_hold_no_request_at_all():
    answer = plan_capacity(**{**QUESTION, "memory": 57_344 * 100})
    assert (answer.requests_paged, answer.requests_reserved) == (0, 0)


def test_a_plan_becomes_json_and_does_not_change(mix):
    answer = plan_capacity(**QUESTION, lengths=mix)
    answered = json.loads(json.dumps(answer.to_dict()))
    assert answered["requests_paged"] == 342
    assert answered["lengths"]["paged"][0] == {
        "page_size": 1,
        "used_fraction": 1.0,
        "wasted_tokens": 0,
    }
    with pytest.raises(FrozenInstanceError):
        answer.page_size = 1


def test_planning_knows_the_dtypes_of_the_pools():
    from radixkv.memory.kv_pool import KV_DTYPES

    assert {name: dtype.itemsize for name, dtype in KV_DTYPES.items()} == DTYPE_BYTES


@pytest.mark.parametrize(("dtype", "size"), DTYPE_BYTES.items())
def test_bytes_a_token_follow_the_dtype(dtype, size):
    assert bytes_per_token(layers=30, kv_heads=3, head_dim=64, dtype=dtype) == 11_520 * size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("55GiB", 55 * 2**30),
        ("80GB", 80 * 10**9),
        ("1.5TiB", 3 * 2**39),
        ("1 kb", 1000),
        (" 4096 ", 4096),
        ("7b", 7),
        (4096, 4096),
    ],
)
def test_memory_sizes_are_read_as_people_write_them(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "GiB", "55 gigs", "-1GiB", "0", "0.4B", "1e9", "1.GB", "nan", None, True, "9" * 5000],
)
def test_what_is_no_memory_size_is_refused(text):
    with pytest.raises(InvalidArgumentError, match="memory"):
        parse_memory(text)


BAD = [
    ("layers", 0),
    ("layers", 1.5),
    ("kv_heads", -4),
    ("head_dim", 0),
    ("head_dim", True),
    ("dtype", "int4"),
    ("memory", "lots"),
    ("context", 0),
    ("context", -3000),
    ("reserve", 0),
    ("reserve", 2999),
    ("page_size", 0),
    ("page_size", "16"),
    ("page_size", 10**9),
    ("lengths", [0]),
    ("lengths", [5, -1]),
    ("lengths", [32_769]),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_argument_is_named_with_its_value(name, value):
    with pytest.raises(InvalidArgumentError) as caught:
        plan_capacity(**{**QUESTION, name: value})
    message = str(caught.value)
    assert name.removesuffix("s").replace("_", " ") in message.replace("_", " ")
    assert str(value).strip("[]").split(", ")[-1] in message
    assert caught.value.details


def test_lengths_are_read_from_a_file(tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("12\n7, 9\n\n")
    assert read_lengths(path) == [12, 7, 9]


@pytest.mark.parametrize("content", [b"", b"\n", b"12\nmany\n", b"\xff\xfe\x00"])
def test_a_file_without_lengths_is_refused_by_name(tmp_path, content):
    path = tmp_path / "lengths.txt"
    path.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=r"lengths\.txt"):
        read_lengths(path)


def test_a_missing_file_of_lengths_is_refused_by_name(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"nowhere\.txt"):
        read_lengths(tmp_path / "nowhere.txt")
