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
from radixkv.lab.replay.pool import longest_request
from radixkv.lab.replay.rates import Rates, read_rates
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.scheduling import SCHEDULINGS
from radixkv.lab.replay.setting import Setting
from radixkv.lab.replay.target import pool_for_first_token
from radixkv.lab.replay.timed import timed_replay
from tests.lab.logs import ask

RATES = Rates(step_ms=5, prefill_us=300, decode_us=40, kv_ns=9_000, chunk=12)


class Oracle:
    """One server, a step at a time; a cached token is a prefix with the time of its last use."""

    def __init__(self, log, setting, rates):
        self.log, self.setting, self.rates = log, setting, rates
        self.cached, self.locks, self.clock = {}, {}, 0
        self.held = 0  # slots of requests that are not in the tree
        self.now, self.waiting, self.running = 0.0, [], []
        self.found = {}

    def run(self):
        order = np.argsort(self.log.times, kind="stable").tolist()
        start = self.log.times.min()
        while order or self.waiting or self.running:
            while order and self.log.times[order[0]] - start <= self.now:
                self.waiting.append(order.pop(0))
            self.admit()
            if self.running:
                self.step()
            elif order:
                self.now = self.log.times[order[0]] - start
        return self.found

    def admit(self):
        while self.waiting and len(self.running) < self.setting.in_flight:
            request = self.log[self.waiting[0]]
            prompt = tuple(request.token_ids.tolist())
            answer = tuple(request.outputs[0].tolist())
            if len(prompt) + len(answer) > self.setting.capacity:
                self.waiting.pop(0)
                continue
            matched = self.take(prompt, len(answer))
            if matched is None:
                return
            place = self.waiting.pop(0)
            self.found[place] = {"cached": matched, "admitted": self.now}
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

    def step(self):
        rates, room = self.rates, self.rates.chunk
        decoding = [job for job in self.running if not job["left"]]
        kv = sum(len(job["prompt"]) + job["given"] for job in decoding)
        computed = []
        for job in self.running:
            if job["left"] and room:
                taken = min(job["left"], room)
                job["left"] -= taken
                room -= taken
                computed.append(job)
        self.now += (
            1e-3 * rates.step_ms
            + 1e-6 * rates.prefill_us * (rates.chunk - room)
            + 1e-6 * rates.decode_us * len(decoding)
            + 1e-9 * rates.kv_ns * kv
        )
        for job in decoding:
            job["given"] += 1
        for job in computed:
            if not job["left"]:
                job["given"] = 1
                self.found[job["place"]]["first"] = self.now
                self.share(job, job["prompt"])
        for job in sorted(self.running, key=lambda job: job["place"]):
            if not job["left"] and job["given"] >= len(job["answer"]):
                self.found[job["place"]]["finished"] = self.now
                self.end(job)

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

    def end(self, job):
        whole = job["prompt"] + job["answer"] if self.setting.outputs else job["prompt"]
        self.share(job, whole)
        self.held -= job["own"]
        for end in range(1, job["locked"] + 1):
            self.locks[whole[:end]] -= 1
        self.running.remove(job)


def random_log(rng, count=60):
    words = ["abab", "abba", "bbbb", "aaca", "c"]
    prompts = ["".join(rng.choice(words, rng.integers(1, 8))) for _ in range(count)]
    outputs = tuple("xyz" * int(rng.integers(1, 9)) for _ in prompts)
    times = np.cumsum(rng.exponential(0.08, count))
    return ListedLog(
        replace(each, ts=float(at))
        for each, at in zip(ask(*prompts, outputs=outputs), times, strict=True)
    )


@pytest.mark.parametrize("outputs", [False, True])
@pytest.mark.parametrize(("capacity", "in_flight"), [(60, 1), (60, 4), (120, 8), (2000, 16)])
@pytest.mark.parametrize("kv_ns", [0, 9_000])
def test_times_and_hits_are_those_of_an_oracle(rng, outputs, capacity, in_flight, kv_ns):
    log = random_log(rng)
    rates = replace(RATES, kv_ns=kv_ns)
    setting = Setting(capacity=capacity, in_flight=in_flight, outputs=outputs)
    found, expected = timed_replay(log, setting, rates), Oracle(log, setting, rates).run()
    for place, each in expected.items():
        assert found.cached_tokens[place] == each["cached"], place
        assert found.admitted_s[place] == pytest.approx(each["admitted"])
        assert found.first_token_s[place] == pytest.approx(each["first"])
        assert found.finished_s[place] == pytest.approx(each["finished"])
    assert set(np.flatnonzero(~np.isnan(found.finished_s))) == {*expected}
    assert found.peak_in_flight <= capacity


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
        assert rates.steps_s(steps, 0, count, kv) >= seconds
        assert steps == 1 or rates.steps_s(steps - 1, 0, count, kv) < seconds


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
    found = json.loads(result.stdout)["timed"]
    assert found["requests"] == 30
    assert 0 < found["first_token_s"]["median"] <= found["first_token_s"]["p95"]
    shown = lab("replay", log, "--order", "time", "--rates", rates).stdout
    assert "first token, p95" in shown


def test_rates_without_order_time_are_refused(files):
    result = lab("replay", files[0], "--rates", files[1])
    assert result.exit_code == 2
    assert "--rates needs --order time" in result.stderr


def test_the_pool_for_a_first_token(files):
    log, rates = files
    how = ["--ttft-p95", 0.02, "--rates", rates, "--in-flight", 2]
    found = json.loads(lab("advise", log, *how, "--jobs", 1, "--json").stdout)
    assert found["first_token_p95_s"] == 0.02
    assert "of first tokens within 0.02 s" in found["advice"]
    result = lab("advise", log, "--ttft-p95", 0.02)
    assert result.exit_code == 2
    assert "--ttft-p95 needs --rates" in result.stderr
