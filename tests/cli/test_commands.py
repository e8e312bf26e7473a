"""The commands that ask and look, in this process, against a real server."""

import json
import random
import sys

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

import radixkv
from radixkv import Namespace
from radixkv.cli.options import help_of


def hold(cache, token_ids, namespace=radixkv.DEFAULT):
    request = cache.admit(token_ids, namespace)
    slots = request.slots.tolist()
    cache.finish(request, up_to=request.length)
    return slots


def test_match_of_ids(run, cache, server):
    slots = hold(cache, [1, 2, 3])
    before = cache.stats()
    asked = run("match", "--target", server.address, "--ids", "1,2,9,9", "--ids", "7", "--json")
    assert asked.exit_code == 0
    assert json.loads(asked.stdout) == {
        "epoch": cache.events.epoch,
        "revision": cache.events.revision,
        "matches": [
            {"tokens": 4, "matched_length": 2, "slots": None},
            {"tokens": 1, "matched_length": 0, "slots": None},
        ],
    }
    assert cache.stats() == before
    asked = run("match", "--target", server.address, "--ids", "1 2 3", "--slots", "--json")
    (match,) = json.loads(asked.stdout)["matches"]
    assert match == {"tokens": 3, "matched_length": 3, "slots": slots}


def test_match_of_ids_from_standard_input(run, cache, server):
    hold(cache, [1, 2, 3])
    where = ["match", "--target", server.address, "--json", "--ids"]
    asked = run(*where, "-", "--ids", "7", input="[1, 2, 9]\n\n1,2,3\n")
    assert [m["matched_length"] for m in json.loads(asked.stdout)["matches"]] == [2, 3, 0]
    wrong = run(*where, "-", input=f"[{'1, ' * 1000}x]\n")
    assert wrong.exit_code == 2
    assert len(wrong.stderr) < 200


def test_match_for_people(run, cache, server):
    slots = hold(cache, [1, 2, 3])
    asked = run("match", "--target", server.address, "--ids", "1,2,9,9", "--slots")
    assert asked.exit_code == 0
    row = next(line for line in asked.stdout.splitlines() if "50%" in line)
    assert [cell.strip() for cell in row.strip("│ ").split("│")] == [
        "0",
        "4",
        "2",
        "50%",
        f"{slots[0]} {slots[1]}",
    ]


def test_match_in_a_namespace(run, cache, server):
    hold(cache, [1, 2], Namespace(salt="a", adapter="", extra_key="k"))

    def length(*namespace: str):
        asked = run("match", "--target", server.address, "--ids", "1,2", "--json", *namespace)
        return json.loads(asked.stdout)["matches"][0]["matched_length"]

    assert length("--salt", "a", "--adapter", "", "--extra-key", "k") == 2
    assert length("--salt", "a", "--extra-key", "k") == 0
    assert length() == 0
    assert length("--salt", "a", "--adapter", "", "--extra-key", "k", "--weight-version", "3") == 0


def test_match_of_text(run, cache, server, tmp_path):
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "hello": 11, "world": 12}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    file = tmp_path / "tokenizer.json"
    tokenizer.save(str(file))
    hold(cache, [11, 12, 11])
    asked = run(
        "match",
        "--target",
        server.address,
        "--text",
        "hello world",
        "--tokenizer",
        str(file),
        "--json",
    )
    assert json.loads(asked.stdout)["matches"][0] == {
        "tokens": 2,
        "matched_length": 2,
        "slots": None,
    }
    where = ["match", "--target", server.address, "--text", "hello world", "--json"]
    assert run(*where, "--tokenizer", str(tmp_path)).stdout == asked.stdout, "or its folder"


def test_text_without_tokenizers_says_what_to_install(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")
    done = run("match", "--text", "hello", "--tokenizer", str(file))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "pip install tokenizers" in done.stderr


def test_leave_last(run, cache, server):
    hold(cache, [1, 2])
    asked = run("match", "--target", server.address, "--ids", "1,2", "--leave-last", "--json")
    assert json.loads(asked.stdout)["matches"][0]["matched_length"] == 1


def test_the_target_comes_from_the_environment(run, server, monkeypatch):
    monkeypatch.setenv("RADIXKV_TARGET", server.address)
    assert run("match", "--ids", "1").exit_code == 0


def test_stats(run, cache, server):
    hold(cache, [1, 2, 3])
    cache.match_prefix([1, 2, 9, 9])
    asked = run("stats", "--target", server.address, "--json")
    assert asked.exit_code == 0
    shown = json.loads(asked.stdout)
    stats = cache.stats()
    assert (shown["num_slots"], shown["free_slots"], shown["evictable_size"]) == (64, 61, 3)
    assert (shown["epoch"], shown["revision"]) == (stats.epoch, stats.revision)
    assert shown["hit_rate"] == stats.hit_tokens / stats.lookup_tokens
    people = run("stats", "--target", server.address)
    assert people.exit_code == 0
    assert str(stats.epoch) in people.stdout
    assert "core, page size 1" in people.stdout.splitlines()[0], "the title stands on one line"


def test_stats_of_a_cache_without_lookups(run, server):
    shown = json.loads(run("stats", "--target", server.address, "--json").stdout)
    assert shown["hit_rate"] is None
    assert "hit rate" in run("stats", "--target", server.address).stdout


PLAN = [
    *("plan", "--layers", "28", "--kv-heads", "4", "--head-dim", "128", "--dtype", "bfloat16"),
    *("--memory", "55GiB", "--context", "3000", "--reserve", "32768", "--page-size", "16"),
]


def test_plan(run):
    planned = run(*PLAN, "--json")
    assert planned.exit_code == 0
    shown = json.loads(planned.stdout)
    assert shown["bytes_per_token"] == 57_344
    assert (shown["requests_paged"], shown["requests_reserved"]) == (342, 31)
    for value in ("57,344", "342", "31"):
        assert value in run(*PLAN).stdout


def test_plan_for_a_mix_of_lengths(run, tmp_path):
    rng = random.Random(0)
    lengths = [rng.randint(100, 2000) + rng.randint(20, 1500) for _ in range(200)]
    file = tmp_path / "lengths.txt"
    file.write_text("\n".join(map(str, lengths)))
    mix = [*PLAN[:-4], "--context", "3000", "--reserve", "4096", "--lengths", str(file)]
    shown = json.loads(run(*mix, "--json").stdout)["lengths"]
    assert round(100 * shown["reserved_used_fraction"], 1) == 46.2
    used = {use["page_size"]: round(100 * use["used_fraction"], 1) for use in shown["paged"]}
    assert used == {1: 100.0, 16: 99.6, 64: 98.3, 256: 93.2}
    people = run(*mix).stdout
    assert "46.2%" in people
    assert "93.2%" in people


def test_doctor(run):
    looked = run("doctor", "--json")
    assert looked.exit_code == 0
    findings = {found["name"]: found for found in json.loads(looked.stdout)}
    assert findings["grpc"]["state"] == findings["core"]["state"] == "ok"
    people = run("doctor")
    assert people.exit_code == 0
    assert all(name in people.stdout for name in findings)
    for found in findings.values():
        assert all(word in people.stdout for word in found["advice"].split())


def test_doctor_fails_for_what_is_broken(run, monkeypatch):
    monkeypatch.setenv("RADIXKV_CORE", "no such core")
    looked = run("doctor")
    assert looked.exit_code == 1
    assert "broken" in looked.stdout


WRONG = {
    "ids": (["match", "--ids", "1,x"], "got '1,x'"),
    "negative": (["match", "--ids", "-5"], "-5"),
    "no prompt": (["match"], "--ids 1,2,3"),
    "not UTF-8": (["match", "--text", "a\udcff", "--tokenizer", "smollm2"], "must be UTF-8"),
    "no tokenizer": (["match", "--text", "a"], "--tokenizer"),
    "a name of no tokenizer": (["match", "--text", "a", "--tokenizer", "gpt"], "or smollm2"),
    "no such tokenizer": (["match", "--text", "a", "--tokenizer", "/nowhere"], "/nowhere"),
    "memory": ([*PLAN, "--memory", "lots"], "lots"),
    "no lengths": ([*PLAN, "--lengths", "/nowhere"], "/nowhere"),
}


@pytest.mark.parametrize(("arguments", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_one_line_and_exit_code_2(run, arguments, says):
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("radixkv: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


@pytest.mark.parametrize("command", [["match", "--ids", "1"], ["stats"], ["stats", "--watch"]])
def test_no_server_there_is_one_line_and_exit_code_1(run, command):
    done = run(*command, "--target", "127.0.0.1:1")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        "radixkv: no server answers at 127.0.0.1:1: connection refused; "
        "`radixkv serve` starts one\n"
    )
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command", [["no-such"], ["match", "--no-such"], ["plan"], ["stats", "--every", "0"]]
)
def test_usage_is_exit_code_2(run, command):
    done = run(*command)
    assert (done.exit_code, done.stdout) == (2, "")


def test_version(run):
    assert run("--version").stdout == f"radixkv {radixkv.__version__}\n"


def test_help_is_folded_where_the_terminal_ends_and_not_as_the_source_is():
    def command():
        """One sentence.

        A paragraph that goes
        on.
        """

    assert help_of(command) == "One sentence.\n\nA paragraph that goes on."


@pytest.mark.parametrize("command", ["serve", "match", "stats", "plan", "demo", "doctor"])
def test_help(run, command):
    assert command in run("--help").stdout
    shown = run(command, "--help")
    assert shown.exit_code == 0
    assert f" {command} " in shown.stdout
