"""`radixkv lab` in this process."""

import json

import pytest
from typer.testing import CliRunner

from radixkv.cli import app

ROWS = [
    {"prompt": "abcdefgh", "session": "u", "meta": {"who": "x"}, "outputs": ["ij"], "ts": 3},
    {"prompt": "abcdxxxx", "session": "v", "meta": {"who": "y"}, "ts": 2},
    {"prompt": "abcdefghijkl", "session": "u", "meta": {"who": "x"}, "ts": 4},
]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    return path


@pytest.fixture
def lab(log):
    """`radixkv lab COMMAND` on the log, by bytes."""

    def invoke(command, *options):
        return CliRunner().invoke(
            app, ["lab", command, str(log), "--tokenizer", "bytes", *map(str, options)]
        )

    return invoke


def answer(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_replay(lab):
    found = answer(lab("replay", "--json"))
    assert found["hit_rate"] == 12 / 28
    assert (found["requests"], found["prompt_tokens"], found["cached_tokens"]) == (3, 28, 12)
    assert found["infinite_hit_rate"] == found["hit_rate"]
    assert (found["log"]["format"], found["log"]["order"]) == ("text", "file")
    assert found["by_session"]["sessions"] == 2
    assert len(found["over_time"]) == 3


def test_replay_with_every_option(lab):
    found = answer(
        lab("replay", "--page-size", 2, "--capacity", 20, "--policy", "fifo", "--order", "time",
            "--outputs", "--in-flight", 2, "--scheduling", "longest-match", "--namespace",
            "meta.who", "--session", "meta.who", "--model", "llama-3.1-8b", "--json")
    )  # fmt: skip
    assert found["setting"] | {"scheduling": None} == {
        "page_size": 2, "capacity": 20, "policy": "fifo", "outputs": True, "in_flight": 2,
        "scheduling": None, "core": None, "capacity_of": "pool",
    }  # fmt: skip
    assert found["infinite_hit_rate"] >= found["hit_rate"]
    assert [part["name"] for part in found["by_namespace"]] == ["y", "x"]
    assert found["prefill"]["saved_flops"] > 0


def test_replay_for_people(lab):
    shown = lab(
        "replay", "--capacity", 16, "--model", "qwen2.5-7b", "--namespace", "meta.who"
    ).stdout
    for expected in (
        "hit rate",
        "an infinite cache",
        "one that knows the future",
        "over time",
        "by namespace",
        "prefill",
    ):
        assert expected in shown


def test_replay_of_a_log_where_the_first_request_has_no_time(lab, log):
    log.write_text("\n".join(json.dumps({"prompt": "ab"} | each) for each in ({}, {"ts": 5})))
    shown = lab("replay")
    assert shown.exit_code == 0, shown.output
    assert "from request 1, 0 s" in shown.stdout


def test_replay_counts_seconds_from_the_first_request_of_all(lab):
    assert [part["start_s"] for part in answer(lab("replay", "--json"))["over_time"]] == [1, 0, 2]


def test_replay_without_what_takes_memory_for_the_whole_log(lab):
    found = answer(lab("replay", "--capacity", 8, "--no-references", "--json"))
    assert "infinite_hit_rate" not in found
    assert "clairvoyant_hit_rate" not in found
    assert "knows the future" not in lab("replay", "--capacity", 8, "--no-references").stdout


def test_outputs(lab):
    assert answer(lab("replay", "--outputs", "--json"))["cached_tokens"] == 14


def test_sweep(lab):
    found = answer(
        lab("sweep", "--capacities", "4,inf", "--policies", "lru,mru", "--jobs", 1, "--json")
    )
    assert [(each["setting"]["capacity"], each["setting"]["policy"]) for each in found] == [
        (4, "lru"), (4, "mru"), (None, "lru"), (None, "mru")
    ]  # fmt: skip
    assert found[2]["hit_rate"] == 12 / 28


def test_sweep_for_people(lab):
    shown = lab("sweep", "--page-sizes", "1,4", "--schedulings", "arrival,longest-match",
                "--capacities", "8,inf", "--jobs", 1).stdout  # fmt: skip
    assert "infinite" in shown
    assert "lru, page 4, by longest-match" in shown


def test_sweep_beside_one_that_knows_the_future(lab):
    found = answer(
        lab(
            "sweep", "--capacities", "8,inf", "--policies", "lru,clairvoyant", "--json", "--jobs", 1
        )
    )
    rates = {(each["setting"]["policy"], each["setting"]["capacity"]): each["hit_rate"]
             for each in found}  # fmt: skip
    assert rates["clairvoyant", 8] >= rates["lru", 8]
    assert rates["clairvoyant", None] == rates["lru", None] == 12 / 28


def test_sweep_of_one_that_knows_the_future_alone(lab):
    found = answer(
        lab("sweep", "--capacities", "8,inf", "--policies", "clairvoyant", "--page-sizes", "1,2",
            "--json")
    )  # fmt: skip
    assert [(each["setting"]["page_size"], each["setting"]["capacity"]) for each in found] == [
        (1, 8), (1, None), (2, 8), (2, None)
    ]  # fmt: skip
    assert found[1]["hit_rate"] == 12 / 28
    result = lab("sweep", "--policies", "clairvoyant", "--page-sizes", "0")
    assert (result.exit_code, "got 0" in result.stderr) == (2, True)


def test_curve(lab):
    beside = ["--capacity-of", "cache"]
    found = answer(lab("curve", "--capacities", "4,8,100", *beside, "--json"))
    assert [point["capacity"] for point in found["points"]] == [4, 8, 100]
    for point in found["points"]:
        capacity = point["capacity"]
        replayed = answer(lab("replay", "--capacity", capacity, *beside, "--json"))["hit_rate"]
        assert point["hit_rate"] == pytest.approx(replayed)
    assert found["infinite_hit_rate"] == 12 / 28
    assert found["capacity_for"]["100%"] == 12


def test_curve_of_another_policy(lab):
    beside = ["--capacity-of", "cache"]
    found = answer(lab("curve", "--policy", "fifo", "--capacities", "8", *beside, "--json"))
    assert found["points"][0]["hit_rate"] == pytest.approx(
        answer(lab("replay", "--policy", "fifo", "--capacity", "8", *beside, "--json"))["hit_rate"]
    )
    assert (found["points"][0]["sampled"], found["points"][0]["error"]) == (1, 0)


def test_a_curve_of_another_policy_and_larger_pages_is_refused_unread(lab, log):
    log.unlink()
    result = lab("curve", "--policy", "lfu", "--page-size", 16, "--capacity-of", "cache")
    assert result.exit_code == 2
    assert "page_size of a sampled curve must be 1; got 16" in result.stderr


def test_a_curve_of_a_pool_is_its_replays(lab):
    options = ["--in-flight", 2, "--outputs", "--policy", "fifo"]
    found = answer(lab("curve", "--capacities", "20,30", "--jobs", 1, *options, "--json"))
    for point in found["points"]:
        replayed = answer(lab("replay", "--capacity", point["capacity"], *options, "--json"))
        assert {name: replayed[name] for name in point if name != "capacity"} | {
            "capacity": point["capacity"]
        } == point
        assert point["peak_in_flight"] <= point["capacity"]
    wanted = found["capacity_for"]["80%"]
    rate = answer(lab("replay", "--capacity", wanted, *options, "--json"))["hit_rate"]
    assert rate >= 0.8 * found["infinite_hit_rate"]


def test_curve_for_people(lab):
    shown = lab("curve").stdout
    assert "of the hits of an infinite cache" in shown
    assert "42.9%" in shown
    assert "1. token" in lab("curve", "--policy", "fifo", "--capacity-of", "cache").stdout
    result = lab("curve", "--capacities", "inf")
    assert result.exit_code == 2
    assert "--capacities must have a number of tokens" in result.stderr


def test_explain(lab):
    found = answer(lab("explain", "--json"))
    assert found["prompt_tokens"] - found["computed_tokens"] == 12
    assert sum(found["causes"].values()) == found["computed_tokens"]
    assert found["findings"][0]["cause"] in found["causes"]


def test_explain_for_people(lab):
    shown = lab("explain", "--most", 2).stdout
    assert "16 of 28 prompt tokens were computed" in shown
    assert "begins otherwise than any request before" in shown
    assert "\n1. 8 tokens" in shown
    assert "\n3. " not in shown


def test_generate(tmp_path):
    out = tmp_path / "made.jsonl.xz"
    how = ["lab", "generate", "chat", str(out), "--requests", "9"]
    assert answer(CliRunner().invoke(app, [*how, "--json"]))["requests"] == 9
    found = CliRunner().invoke(app, ["lab", "replay", str(out), "--json"])
    assert answer(found)["requests"] == 9
    assert "prompt_tokens" in CliRunner().invoke(app, how).stdout


def test_a_bad_line_is_told_in_one_line(lab, log):
    with log.open("a") as file:
        file.write('\n{"prompt": 7}\n')
    result = lab("replay", "--json")
    assert result.exit_code == 2
    assert result.stderr.strip() == (
        f"radixkv: {log}, line 4: prompt must be text that is not empty; got 7"
    )
    assert result.stdout == ""
    skipped = lab("replay", "--skip-bad", "--json")
    assert "left out 1 bad lines, 5.7% of the text (1 x prompt must be text" in skipped.stderr
    assert answer(skipped)["log"]["skipped"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--order", "random"], "order must be file, time or interleave-N; got 'random'"),
        (["--policy", "lucky"], "policy must be one of lru"),
        (["--scheduling", "vip"], "scheduling must be one of arrival"),
        (["--format", "xml"], "format must be one of"),
        (["--model", "none"], "model must be one of"),
        (["--page-size", "0"], "page_size must be an int from 1 to 2147483647; got 0"),
        (
            ["--page-size", "9" * 20],
            "page_size must be an int from 1 to 2147483647; got 99999999999999999999",
        ),
        (
            ["--page-size", "2147483648"],
            "page_size must be an int from 1 to 2147483647; got 2147483648",
        ),
        (["--page-size", "2147483647"], "or a smaller page size than 2,147,483,647"),
        (
            ["--capacity", "9" * 20],
            "capacity must be an int from 0 to 2147483647; got 99999999999999999999",
        ),
    ],
)
def test_a_wrong_option_is_told_in_one_line(lab, options, message):
    result = lab("replay", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("radixkv: ")
    assert message in result.stderr


@pytest.mark.parametrize("command", ["sweep", "curve", "report"])
def test_a_capacity_that_no_pool_has(lab, command):
    result = lab(command, "--capacities", "9" * 20)
    assert result.exit_code == 2
    assert "capacity must be an int from 0 to 2147483647; got 99999999999999999999" in result.stderr


@pytest.mark.parametrize("in_flight", ["1000000000", "9" * 23])
def test_more_in_flight_than_there_are(lab, in_flight):
    found = answer(lab("replay", "--in-flight", in_flight, "--capacity", 2**31 - 1, "--json"))
    assert found["hit_rate"] == answer(lab("replay", "--in-flight", 3, "--json"))["hit_rate"]
    assert answer(lab("explain", "--in-flight", in_flight, "--json"))["computed_tokens"] == 16


def test_more_findings_than_there_are(lab):
    assert answer(lab("explain", "--most", "9" * 20, "--json"))["findings"]


@pytest.mark.parametrize(
    "wrong",
    [["--capacities", "4k"], ["--capacities", "1__0"], ["--capacities", "-8"],
     ["--capacities", ""], ["--page-sizes", "1,x"]],
)  # fmt: skip
def test_a_list_that_is_none(lab, wrong):
    result = lab("sweep", *wrong)
    assert result.exit_code == 2
    assert "must be" in result.stderr


def test_an_empty_file(tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    result = CliRunner().invoke(app, ["lab", "replay", str(empty), "--json"])
    assert result.exit_code == 2
    assert "it has no line with any of hash_ids, messages, input" in result.stderr
