"""The commands that watch and operate a server, in this process, against a real one."""

import json

import pytest

from radixkv import Namespace
from radixkv.cli.top import _short
from radixkv.service import CacheServer, Client
from tests.support.service import hold


def test_watch_shows_what_there_is(run, cache, server):
    hold(cache, [1, 2, 3, 4])
    hold(cache, [1, 2, 9])
    done = run("watch", "--target", server.address, "--count", "2", "--json")
    assert done.exit_code == 0
    first, second = map(json.loads, done.stdout.splitlines())
    assert first == {
        "epoch": cache.events.epoch,
        "revision": 2,
        "snapshot": True,
        "event": "stored",
        "run": 1,
        "parent_run": 0,
        "parent_offset": 0,
        "tokens": [1, 2, 3, 4],
    }
    assert (second["parent_run"], second["parent_offset"], second["tokens"]) == (1, 2, [9])


def test_watch_goes_on_from_the_revision_given(run, cache, server):
    epoch = cache.events.epoch
    hold(cache, [1, 2, 3])
    cache.evict(2)
    cache.evict(1)
    cache.reset()
    where = ["watch", "--target", server.address, "--after", f"{cache.events.epoch}:3"]
    done = run(*where, "--count", "1", "--json")
    assert json.loads(done.stdout)["event"] == "cleared"
    assert cache.events.epoch != epoch
    people = run(*where, "--count", "1")
    assert "cleared; epoch" in people.stdout


def test_watch_for_people(run, cache, server):
    hold(cache, range(20), Namespace(salt="a"))
    hold(cache, [7], Namespace(salt="b"))
    place = f"{cache.events.epoch}:0"
    hold(cache, [1, 2])
    cache.evict(2)
    cache.evict(100)
    lines = run("watch", "--target", server.address, "--after", place, "--count", "7").stdout
    assert "run 1 +20, 20 tokens from the root: 0 1 2 3 4 5 6 7 ..." in lines
    assert "keeps 18" in lines
    assert "is gone" in lines
    only = run("watch", "--target", server.address, "--salt", "b", "--after", place, "--count", "1")
    assert "run 2 +1, 1 token from the root: 7" in only.stdout


def test_watch_without_a_server_ends_at_once(run):
    done = run("watch", "--target", "127.0.0.1:1")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no server answers at 127.0.0.1:1" in done.stderr
    assert "`radixkv serve` starts one" in done.stderr


def test_top(run, cache, server):
    hold(cache, [1, 2, 3])
    with CacheServer(cache, "127.0.0.1:0") as other:
        targets = [server.address, other.address]
        (line,) = run("top", *targets, "127.0.0.1:1", "--once", "--json").stdout.splitlines()
        one, two, absent = json.loads(line)
        assert (one["target"], one["evictable_size"], one["free_slots"]) == (targets[0], 3, 61)
        assert two["evictable_size"] == 3
        assert absent["target"] == "127.0.0.1:1"
        assert absent["error"] == "no server answers at 127.0.0.1:1: connection refused"
        people = run("top", *targets, "127.0.0.1:1", "--once").stdout
        assert "3 workers" in people
        assert absent["error"] in people
        assert all(target in people for target in targets)
        assert max(map(len, people.splitlines())) <= 80


def test_top_once_without_a_server(run):
    for how in ([], ["--json"]):
        done = run("top", "127.0.0.1:1", "--once", *how)
        assert done.exit_code == 1
        assert "no server answers at 127.0.0.1:1" in done.stdout
    title, *_ = run("top", "127.0.0.1:1", "--once").stdout.splitlines()
    assert title.strip() == "1 worker"


SIZES = {0: "0", 9999: "9999", 10_000: "10.0k", 98_304: "98.3k", 100_000: "100k"}
SIZES |= {9_999_999: "10000k", 10_000_000: "10.0M", 2**31: "2147M"}


@pytest.mark.parametrize(("size", "shown"), SIZES.items())
def test_sizes_in_top_are_short(size, shown):
    assert _short(size) == shown


def test_leases(run, server):
    with Client(server.address, timeout_s=60) as client:
        lease = client.lease(60, holder="engine [1]")
        lease.pin([1])
        (shown,) = json.loads(run("lease", "list", "--target", server.address, "--json").stdout)
        assert (shown["id"], shown["holder"], shown["num_pins"]) == (lease.id, "engine [1]", 1)
        one = run("lease", "show", str(lease.id), "--target", server.address, "--json")
        assert json.loads(one.stdout)["id"] == lease.id
        title, *_ = run("lease", "list", "--target", server.address).stdout.splitlines()
        assert title.strip() == "1 lease"
        for command in (["list"], ["show", str(lease.id)]):
            assert "engine [1]" in run("lease", *command, "--target", server.address).stdout
        ended = run("lease", "revoke", str(lease.id), "--target", server.address)
        assert f"lease {lease.id} has ended: 1 pin, 0 slots" in ended.stdout
        gone = run("lease", "show", str(lease.id), "--target", server.address)
        assert (gone.exit_code, gone.stdout) == (1, "")
        assert gone.stderr.startswith("radixkv: there is no lease")
        other = client.lease(60)
        ended = run("lease", "revoke", str(other.id), "--target", server.address, "--json")
        assert json.loads(ended.stdout) == {"num_pins": 0, "num_slots": 0}


def test_evict_and_clear(run, cache, server):
    hold(cache, range(10))
    evicted = run("evict", "4", "--target", server.address, "--json")
    assert json.loads(evicted.stdout) == {"num_evicted": 4}
    assert "2 tokens evicted" in run("evict", "2", "--target", server.address).stdout
    request = cache.admit([1])
    refused = run("clear", "--target", server.address)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "got 1 live requests" in refused.stderr
    cleared = run("clear", "--force", "--target", server.address, "--json")
    assert json.loads(cleared.stdout) == {"epoch": cache.events.epoch}
    cache.finish(request, up_to=request.length)
    cleared = run("clear", "--target", server.address)
    assert f"epoch {cache.events.epoch} begins" in cleared.stdout
    assert cache.stats().free == 64


def test_check(run, cache, server):
    good = run("check", "--target", server.address)
    assert (good.exit_code, good.stdout) == (0, "every invariant holds\n")
    assert json.loads(run("check", "--target", server.address, "--json").stdout) == {
        "violations": []
    }
    cache.loans.borrower_of[3] = 1
    bad = run("check", "--target", server.address)
    assert bad.exit_code == 1
    assert "I1 partition" in bad.stdout


def test_who_asks_comes_from_the_environment(run, cache, tmp_path, monkeypatch):
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[[token]]\nname = "me"\nrole = "data"\ntoken = "good"\n')
    with CacheServer(cache, "127.0.0.1:0", tokens=tokens) as server:
        refused = run("stats", "--target", server.address)
        assert refused.exit_code == 1
        assert "carries no bearer token" in refused.stderr
        monkeypatch.setenv("RADIXKV_TOKEN", "good")
        assert run("stats", "--target", server.address).exit_code == 0
        refused = run("evict", "1", "--target", server.address)
        assert "role data may not call EvictPrefixes" in refused.stderr
    monkeypatch.setenv("RADIXKV_TLS_CA", "/nowhere")
    assert "/nowhere" in run("stats", "--target", server.address).stderr


WRONG = {
    "a level of the log": (["serve", "--log-level", "loud"], "debug, info, warning or error"),
    "text that is none": (
        ["match", "--text", "a\udcff", "--tokenizer", "x.json"],
        "--text must be UTF-8",
    ),
    "more rows than memory": (
        ["serve", "--max-batch", str(2**40)],
        "max_requests rows of max_context_len must fit",
    ),
    "target": (["stats", "--target", "nonsense"], "must be host:port, as in 127.0.0.1:50051"),
    "a worker": (["top", "nonsense"], "must be host:port"),
    "a worker to route to": (["route", "--worker", "a=nonsense"], "must be host:port"),
    "more to evict than there is": (["evict", str(2**70)], "num_tokens must be"),
    "place": (["watch", "--after", "x"], "EPOCH:REVISION"),
    "tenants that are not there": (["serve", "--tenants", "/nowhere"], "/nowhere"),
    "shares that are not there": (["serve", "--shares", "/nowhere"], "/nowhere"),
    "tokens that are not there": (["serve", "--tokens", "/nowhere"], "/nowhere"),
    "half of an encryption": (
        ["serve", "--tls-cert", "/nowhere"],
        "--tls-key FILE",
    ),
    "half of the router's": (["route", "--worker", "a=x:1", "--tls-ca", "/nowhere"], "--tls-key"),
    "prompts for no model": (
        ["serve", "--prompts", "/nowhere"],
        "--model must be given with --prompts",
    ),
    "a chat with no model": (["serve", "--chat"], "--model must be given with --chat"),
}


@pytest.mark.parametrize(("arguments", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_one_line_and_exit_code_2(run, arguments, says):
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("= x", "must be TOML; got other text"),
        ("", "must have a [[share]]; got none"),
        ("[[share]]\nsalts = 3", "entry 1 must be a [[share]] with salt, reserve or cap"),
        ("[[share]]\nsalt = 3", "entry 1: salt must be a string; got 3"),
        ("[[share]]\nreserve = -1", "entry 1: reserve must be an int from 0"),
        ("[[share]]\ncap = 1\nreserve = 2", "entry 1: cap must be at least the reserve, 2; got 1"),
        ("[[share]]\nsalt = 'a'\n[[share]]\nsalt = 'a'", "entry 2: salts must differ"),
        ("[[share]]\nreserve = 9000", "reserves together must be at most 8192"),
    ],
)
def test_shares_that_cannot_be_kept(run, tmp_path, text, says):
    file = tmp_path / "shares.toml"
    file.write_text(text)
    done = run("serve", "--shares", str(file))
    assert done.exit_code == 2
    assert says in done.stderr


@pytest.mark.parametrize("text", ["= x", "a = 5"])
def test_tenants_that_are_none(run, tmp_path, text):
    file = tmp_path / "tenants.toml"
    file.write_text(text)
    done = run("serve", "--tenants", str(file))
    assert done.exit_code == 2
    assert 'must be TOML of alias = "salt"' in done.stderr


def test_help_shows_what_a_tokens_file_has(run):
    for command in ("serve", "route"):
        assert "[[token]]" in run(command, "--help").stdout


def test_an_empty_address_is_not_the_default_one(run):
    for command in (["serve"], ["route", "--worker", "a=x:1"]):
        done = run(*command, "--listen", "")
        assert done.exit_code == 1
        assert "must be host:port or unix:path" in done.stderr
