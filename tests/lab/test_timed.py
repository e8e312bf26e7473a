"""Replays by time, against an oracle that takes every step and keeps every token apart."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from radixkv.cli import app
from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import ListedLog
from radixkv.lab.logs.workloads import generate
from radixkv.lab.replay.fleet import Fleet
from radixkv.lab.replay.pool import longest_request
from radixkv.lab.replay.rates import Rates, read_rates
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.scheduling import SCHEDULINGS
from radixkv.lab.replay.setting import Setting
from radixkv.lab.replay.target import pool_for_first_token
from radixkv.lab.replay.timed import timed_replay
from radixkv.router import POLICIES
from tests.lab.logs import ask

RATES = Rates(
    step_ms=5, prefill_us=300, decode_us=40, kv_ns=9_000, pair_ns=20_000, launch_ms=8, chunk=12
)


class OracleServer:
    """It takes every step by itself; a cached token is a prefix with the time of its last use."""

    def __init__(self, log, setting, rates, found):
        self.log, self.setting, self.rates = log, setting, rates
        self.cached, self.locks, self.clock = {}, {}, 0
        self.held = 0  # slots of requests that are not in the tree
        self.waiting, self.running = [], []
        self.ends_at = np.inf
        self.found = found

    def admit(self, now):
        while self.waiting and len(self.running) < self.setting.in_flight:
            request = self.log[self.waiting[0]]
            prompt = tuple(request.token_ids.tolist())
            answer = tuple(request.outputs[0].tolist())
            matched = self.take(prompt, len(answer))
            if matched is None:
                return
            place = self.waiting.pop(0)
            self.found[place] |= {"cached": matched, "admitted": now}
            self.running.append({
                "place": place, "prompt": prompt, "answer": answer, "left": len(prompt) - matched,
                "given": 0, "locked": matched, "own": len(prompt) - matched + len(answer),
            })  # fmt: skip

    def take(self, prompt, answer):
        matched = 0
        while matched < len(prompt) - 1 and prompt[: matched + 1] in self.cached:
            matched += 1
        path = {prompt[:end] for end in range(1, matched + 1)}
        need = len(prompt) - matched + answer
        keep = {each for each in self.cached if self.locks.get(each) or each in path}
        if self.setting.capacity - len(keep) - self.held < need:
            return None
        while self.setting.capacity - len(self.cached) - self.held < need:
            parents = {each[:-1] for each in self.cached}
            leaves = [each for each in self.cached if each not in keep and each not in parents]
            del self.cached[min(leaves, key=self.cached.__getitem__)]
        self.clock += 1
        for each in path:
            self.cached[each] = self.clock
            self.locks[each] = self.locks.get(each, 0) + 1
        self.held += need
        return matched

    def begin(self, now):
        if self.ends_at < np.inf:
            return
        self.admit(now)
        if not self.running:
            return
        rates, room = self.rates, self.rates.chunk
        self.decoding = [job for job in self.running if not job["left"]]
        kv = sum(len(job["prompt"]) + job["given"] for job in self.decoding)
        self.computed, pairs = [], 0
        for job in self.running:
            if job["left"] and room:
                taken = min(job["left"], room)
                first = len(job["prompt"]) - job["left"]
                pairs += sum(range(first + 1, first + taken + 1))
                job["left"] -= taken
                room -= taken
                self.computed.append(job)
        took = (
            1e-3 * rates.step_ms
            + 1e-6 * rates.prefill_us * (rates.chunk - room)
            + 1e-9 * rates.pair_ns * pairs
            + 1e-6 * rates.decode_us * len(self.decoding)
            + 1e-9 * rates.kv_ns * kv
        )
        if self.computed:
            took = max(took, 1e-3 * rates.launch_ms)
        self.ends_at = now + took

    def end(self):
        now, self.ends_at = self.ends_at, np.inf
        for job in self.decoding:
            job["given"] += 1
        for job in self.computed:
            if not job["left"]:
                job["given"] = 1
                self.found[job["place"]]["first"] = now
                self.share(job, job["prompt"])
        for job in sorted(self.running, key=lambda job: job["place"]):
            if not job["left"] and job["given"] >= len(job["answer"]):
                self.found[job["place"]]["finished"] = now
                self.leave(job)

    def share(self, job, tokens):
        """The tree's slots take the place of the request's own."""
        self.clock += 1
        for end in range(1, len(tokens) + 1):
            prefix = tokens[:end]
            self.cached[prefix] = self.clock
            if end > job["locked"]:
                self.held -= 1
                self.locks[prefix] = self.locks.get(prefix, 0) + 1
        job["own"] -= len(tokens) - job["locked"]
        job["locked"] = len(tokens)

    def leave(self, job):
        whole = job["prompt"] + job["answer"] if self.setting.outputs else job["prompt"]
        self.share(job, whole)
        self.held -= job["own"]
        for end in range(1, job["locked"] + 1):
            self.locks[whole[:end]] -= 1
        self.running.remove(job)


class Oracle:
    """Servers, and a rule for which gets a request: by tokens it holds, requests it has, turns."""

    def __init__(self, log, setting, rates, workers=1, rule=lambda length, held, has, last: 0):
        self.found = {}
        self.servers = [OracleServer(log, setting, rates, self.found) for _ in range(workers)]
        self.log, self.setting, self.rule = log, setting, rule
        self.last = [0] * workers

    def run(self):
        start = self.log.times.min()
        order = np.argsort(self.log.times, kind="stable").tolist()
        coming = [(self.log.times[place] - start, place) for place in order]
        while coming or any(each.running for each in self.servers):
            now = min([each.ends_at for each in self.servers] + [at for at, _ in coming[:1]])
            for each in self.servers:
                if each.ends_at == now:
                    each.end()
            while coming and coming[0][0] == now:
                self.place(coming.pop(0)[1])
            for each in self.servers:
                each.begin(now)
        return self.found

    def place(self, place):
        request = self.log[place]
        prompt = tuple(request.token_ids.tolist())
        if len(prompt) + len(request.outputs[0]) > self.setting.capacity:
            return
        held = [
            sum(prompt[:end] in each.cached for end in range(1, len(prompt) + 1))
            for each in self.servers
        ]
        has = [len(each.waiting) + len(each.running) for each in self.servers]
        at = self.rule(len(prompt), held, has, self.last)
        self.last[at] = max(self.last) + 1
        self.found[place] = {"server": at}
        self.servers[at].waiting.append(place)


def in_turn(length, held, has, last):
    return last.index(min(last))


def least_loaded(length, held, has, last):
    return min(range(len(has)), key=lambda at: (has[at], last[at]))


def least_product(length, held, has, last):
    products = [(length - held[at]) * (has[at] + 1) for at in range(len(has))]
    return min(range(len(has)), key=lambda at: (products[at], has[at], last[at]))


RULES = {"round-robin": in_turn, "least-load": least_loaded, "lmetric": least_product}


def random_log(rng, count=60, gap_s=0.08):
    words = ["abab", "abba", "bbbb", "aaca", "c"]
    prompts = ["".join(rng.choice(words, rng.integers(1, 8))) for _ in range(count)]
    outputs = tuple("xyz" * int(rng.integers(1, 9)) for _ in prompts)
    times = np.cumsum(rng.exponential(gap_s, count))
    return ListedLog(
        replace(each, ts=float(at))
        for each, at in zip(ask(*prompts, outputs=outputs), times, strict=True)
    )


def assert_equal_to(expected, found):
    for place, each in expected.items():
        assert found.servers[place] == each["server"], place
        assert found.cached_tokens[place] == each["cached"], place
        assert found.admitted_s[place] == pytest.approx(each["admitted"])
        assert found.first_token_s[place] == pytest.approx(each["first"])
        assert found.finished_s[place] == pytest.approx(each["finished"])
    assert set(np.flatnonzero(~np.isnan(found.finished_s))) == {*expected}


@pytest.mark.parametrize("outputs", [False, True])
@pytest.mark.parametrize(("capacity", "in_flight"), [(60, 1), (60, 4), (120, 8), (2000, 16)])
@pytest.mark.parametrize("kv_ns", [0, 9_000])
def test_times_and_hits_are_those_of_an_oracle(rng, outputs, capacity, in_flight, kv_ns):
    log = random_log(rng)
    rates = replace(RATES, kv_ns=kv_ns)
    setting = Setting(capacity=capacity, in_flight=in_flight, outputs=outputs)
    found = timed_replay(log, setting, rates)
    assert_equal_to(Oracle(log, setting, rates).run(), found)
    assert found.peak_in_flight <= capacity


@pytest.mark.parametrize("routing", RULES)
@pytest.mark.parametrize(("capacity", "in_flight", "workers"), [(60, 2, 3), (90, 4, 2)])
@pytest.mark.parametrize("kv_ns", [0, 9_000])
def test_a_fleets_times_and_hits_are_those_of_an_oracle(
    rng, routing, capacity, in_flight, workers, kv_ns
):
    log = random_log(rng, 150, 0.03)
    rates = replace(RATES, kv_ns=kv_ns)
    setting = Setting(capacity=capacity, in_flight=in_flight, outputs=True)
    found = timed_replay(log, setting, rates, Fleet(workers, routing))
    assert_equal_to(Oracle(log, setting, rates, workers, RULES[routing]).run(), found)
    assert set(found.servers) <= set(range(-1, workers))


@pytest.mark.parametrize("routing", POLICIES)
def test_a_fleet_answers_every_request_whatever_the_routing(rng, routing):
    log = random_log(rng, 120, 0.02)
    found = timed_replay(log, Setting(capacity=120, in_flight=4), RATES, Fleet(4, routing))
    shown = found.to_dict()
    assert (shown["workers"], shown["routing"], shown["refused"]) == (4, routing, 0)
    work = np.zeros(4)
    for at, server in enumerate(found.servers):
        work[server] += log[at].length - found.cached_tokens[at] + len(log[at].outputs[0])
    assert shown["imbalance"] == pytest.approx(work.max() / work.mean())
    alone = timed_replay(log, Setting(capacity=120, in_flight=4), RATES).to_dict()
    assert shown["first_token_s"]["mean"] < alone["first_token_s"]["mean"]
    assert (alone["imbalance"], alone["routing"]) == (1.0, None)


@pytest.mark.parametrize(("wrong", "named"), [((0,), "workers"), ((2, "nearest"), "policy")])
def test_a_fleet_that_there_is_not(wrong, named):
    with pytest.raises(InvalidArgumentError, match=named):
        Fleet(*wrong)


def test_an_idle_server_takes_one_request_after_another():
    log = ListedLog(
        replace(each, ts=at)
        for each, at in zip(
            ask("abcdefgh", "abcdefgz", outputs=("xy", "z")), (5.0, 9.0), strict=True
        )
    )
    found = timed_replay(log, Setting(), Rates(step_ms=10, prefill_us=1000, chunk=4))
    # Eight tokens in chunks of four, then a token more; one token that was not cached.
    assert found.first_token_s.tolist() == pytest.approx([2 * 0.014, 4 + 0.011])
    assert found.finished_s.tolist() == pytest.approx([2 * 0.014 + 0.010, 4 + 0.011])
    assert found.arrived_s.tolist() == [0, 4]


def test_figures_are_those_of_the_requests(rng):
    log = random_log(rng)
    found = timed_replay(log, Setting(capacity=120, in_flight=8), RATES)
    shown = found.to_dict()
    waits = found.first_token_s - found.arrived_s
    assert shown["first_token_s"]["p95"] == pytest.approx(np.quantile(waits, 0.95))
    assert shown["seconds"] == found.finished_s.max()
    assert shown["output_tokens_per_s"] == pytest.approx(
        log.output_lengths.sum() / found.finished_s.max()
    )
    assert json.dumps(shown)


def test_requests_far_apart_hit_what_an_untimed_replay_hits(rng):
    log = random_log(rng)
    apart = ListedLog(replace(each, ts=1000.0 * at) for at, each in enumerate(log))
    setting = Setting(capacity=100, outputs=True)
    found = timed_replay(apart, setting, RATES)
    assert found.cached_tokens.tolist() == replay(apart, setting).cached_tokens.tolist()


def test_a_faster_card_answers_sooner():
    log = generate("agents", requests=120, seed=4)
    setting = Setting(capacity=2 * longest_request(log), in_flight=8, outputs=True)
    slow = Rates(step_ms=20, prefill_us=100)
    one, two = (
        timed_replay(log, setting, each) for each in (slow, Rates(step_ms=10, prefill_us=50))
    )
    first = [each.to_dict()["first_token_s"]["mean"] for each in (one, two)]
    assert first[1] < first[0]


def test_a_request_longer_than_the_pool_is_refused_and_counted():
    asked = ask("abcdefgh", "ab", outputs=("x", "y"))
    log = ListedLog(replace(each, ts=float(at)) for at, each in enumerate(asked))
    found = timed_replay(log, Setting(capacity=5), RATES, progress=lambda _: None)
    assert np.isnan(found.finished_s).tolist() == [True, False]
    assert found.to_dict()["refused"] == 1
    none = timed_replay(ListedLog(log[:1]), Setting(capacity=5), RATES)
    assert (none.to_dict()["refused"], none.to_dict()["first_token_s"]) == (1, {})


def test_the_least_pool_for_a_time_to_the_first_token(rng):
    log = random_log(rng, 120)
    setting = Setting(in_flight=16, outputs=True)

    def p95(capacity):
        found = timed_replay(log, replace(setting, capacity=capacity), RATES)
        return found.to_dict()["first_token_s"]["p95"]

    least, best = longest_request(log), p95(None)
    wanted = (p95(least) + best) / 2
    found = pool_for_first_token(log, setting, RATES, wanted)
    assert p95(found) <= wanted < p95(least)
    assert pool_for_first_token(log, setting, RATES, best / 2) is None
    assert pool_for_first_token(log, setting, RATES, 1e6) == least


# ---- rates ----


@pytest.mark.parametrize("kv_ns", [0.0, 500.0])
def test_steps_within_a_time_are_the_fewest_that_take_it(rng, kv_ns):
    rates = Rates(step_ms=3, prefill_us=1, decode_us=20, kv_ns=kv_ns)
    for _ in range(200):
        seconds, count, kv = rng.random() * 2, int(rng.integers(1, 50)), int(rng.integers(1, 10**5))
        steps = rates.steps_within(seconds, count, kv)
        assert rates.decode_s(steps, count, kv) >= seconds
        assert steps == 1 or rates.decode_s(steps - 1, count, kv) < seconds


@pytest.mark.parametrize(
    "wrong",
    [{"step_ms": 0}, {"prefill_us": -1}, {"kv_ns": float("nan")}, {"chunk": 0}, {"decode_us": "x"}],
)
def test_rates_that_no_card_has(wrong):
    with pytest.raises(InvalidArgumentError, match="rate"):
        Rates(**{"step_ms": 1, "prefill_us": 1} | wrong)


@pytest.mark.parametrize("content", ["", "[]", '{"step_ms": 1}', '{"speed": 9}'])
def test_a_file_that_is_not_of_rates(tmp_path, content):
    path = tmp_path / "rates.json"
    path.write_text(content)
    with pytest.raises(InvalidArgumentError, match=r"rates must be .*step_ms, prefill_us"):
        read_rates(path)


# ---- refused ----


def test_a_log_without_times_cannot_be_replayed_by_them():
    with pytest.raises(InvalidArgumentError, match="ts must be given in every request"):
        timed_replay(ask("ab"), Setting(), RATES)


def test_another_order_of_admission_than_arrival_is_refused(rng):
    with pytest.raises(InvalidArgumentError, match="scheduling must be by arrival"):
        timed_replay(random_log(rng), Setting(scheduling=SCHEDULINGS["longest-match"]), RATES)


# ---- the command ----


@pytest.fixture
def files(tmp_path):
    log, rates = tmp_path / "log.jsonl", tmp_path / "rates.json"
    rows = [{"prompt": "abcd" * (at % 5 + 1), "ts": at / 10, "outputs": ["xy"]} for at in range(30)]
    log.write_text("\n".join(map(json.dumps, rows)))
    rates.write_text(json.dumps({"step_ms": 5, "prefill_us": 300}))
    return log, rates


def lab(command, log, *options):
    how = ["lab", command, str(log), "--tokenizer", "bytes", *map(str, options)]
    return CliRunner().invoke(app, how)


def test_replay_by_time(files):
    log, rates = files
    result = lab("replay", log, "--order", "time", "--rates", rates, "--in-flight", 4, "--json")
    (found,) = json.loads(result.stdout)["timed"]
    assert (found["requests"], found["workers"]) == (30, 1)
    assert 0 < found["first_token_s"]["median"] <= found["first_token_s"]["p95"]
    shown = lab("replay", log, "--order", "time", "--rates", rates).stdout
    assert "one server" in shown


def test_replay_by_time_behind_each_routing_policy(files):
    log, rates = files
    how = ["--order", "time", "--rates", rates, "--workers", 2]
    found = json.loads(lab("replay", log, *how, "--routing", "all", "--json").stdout)["timed"]
    assert [one["routing"] for one in found] == sorted(POLICIES)
    assert {one["workers"] for one in found} == {2}
    shown = lab("replay", log, *how, "--routing", "lmetric, round-robin").stdout
    assert "by time, 2 servers" in shown
    assert "lmetric" in shown
    assert "cache-aware" not in shown
    (own,) = json.loads(lab("replay", log, *how, "--json").stdout)["timed"]
    assert own["routing"] == "cache-aware"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rates", "R"], "--card and --rates need --order time"),
        (["--workers", 2], "--workers and --routing need --card or --rates"),
        (["--order", "time", "--rates", "R", "--routing", "lmetric"], "--routing needs --workers"),
        (["--order", "time", "--rates", "R", "--card", "h200"], "give --card or --rates; got both"),
        (["--order", "time", "--card", "abacus"], "card must be one of"),
        (
            ["--order", "time", "--rates", "R", "--workers", 2, "--routing", "near"],
            "policy must be",
        ),
    ],
)
def test_options_that_do_not_go_together(files, options, words):
    log, rates = files
    result = lab("replay", log, *(rates if each == "R" else each for each in options))
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


def test_the_pool_for_a_first_token(files):
    log, rates = files
    how = ["--ttft-p95", 0.02, "--rates", rates, "--in-flight", 2]
    found = json.loads(lab("advise", log, *how, "--jobs", 1, "--json").stdout)
    assert found["first_token_p95_s"] == 0.02
    assert "of first tokens within 0.02 s" in found["advice"]
    result = lab("advise", log, "--ttft-p95", 0.02)
    assert result.exit_code == 2
    assert "--ttft-p95 needs --card or --rates" in result.stderr
