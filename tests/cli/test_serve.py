"""`radixkv serve` in this process: a real (tiny) model on a file of prompts."""

import io
import json

import pytest

from radixkv.cli.prompts import parse
from tests.support.tiny_model import ids

SHARED = "The quick brown fox jumps over the lazy dog. "


@pytest.fixture
def serve(run, tiny_model, tmp_path):
    """Answers all prompts in a text with the tiny model."""

    def answer(text: str, *arguments: str):
        file = tmp_path / "prompts.txt"
        file.write_text(text)
        where = ["--model", str(tiny_model), "--prompts", str(file), "--listen", "127.0.0.1:0"]
        return run("serve", *where, "--once", "--max-new-tokens", "4", *arguments)

    return answer


def answers_in(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_prompt_is_answered_and_shares_what_it_can(serve):
    prompts = [f"{SHARED}{n}" for n in range(20)]
    lines = [json.dumps({"prompt": each}) if n % 2 else each for n, each in enumerate(prompts)]
    done = serve("\n\n".join(lines) + "\n", "--json")
    assert done.exit_code == 0, done.stderr
    answers = answers_in(done)
    assert sorted((each["number"], each["prompt"]) for each in answers) == list(
        enumerate(prompts, start=1)
    )
    assert all(len(each["tokens"]) == 4 for each in answers)
    assert all(each["prompt_tokens"] == len(ids(each["prompt"])) for each in answers)
    assert sum(each["cached_tokens"] for each in answers) >= 12 * len(ids(SHARED))
    assert done.stderr.startswith("radixkv: listening on 127.0.0.1:")
    assert done.stderr.endswith("tiny0 with 8,192 slots\n")
    assert done.stderr.count("\n") == 1


def test_the_pool_may_be_far_too_small(serve):
    text = "".join(f"{n} {SHARED}\n" for n in range(12))
    roomy = serve(text, "--json")
    tight = serve(text, "--json", "--slots", "64", "--page-size", "4")
    assert (roomy.exit_code, tight.exit_code) == (0, 0), tight.stderr

    def tokens(done):
        return {each["number"]: each["tokens"] for each in answers_in(done)}

    assert tokens(tight) == tokens(roomy)


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b'{"prompt": "caf\xe9"}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt":' + b"[" * 100_000,
    ],
    ids=["bytes", "latin-1", "half a pair", "deep"],
)
def test_a_line_that_is_not_text_is_reported_and_the_others_are_answered(
    run, tiny_model, tmp_path, line
):
    file = tmp_path / "prompts.txt"
    file.write_bytes(b"\xef\xbb\xbffirst\n" + line + b"\nlast\n")
    where = ["--model", str(tiny_model), "--prompts", str(file), "--listen", "127.0.0.1:0"]
    done = run("serve", *where, "--once", "--max-new-tokens", "4", "--json")
    assert done.exit_code == 1, done.stderr
    assert [answer["prompt"] for answer in answers_in(done)] == ["first", "last"]
    assert "radixkv: line 2 must be" in done.stderr


def test_answers_for_people(serve):
    done = serve("hello\n")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("[1] 0 of 5 tokens from cache: hello\n")
    assert len(done.stdout.splitlines()) >= 2


def test_chat_puts_prompts_into_the_template(serve):
    done = serve("hello\n", "--json", "--chat")
    assert answers_in(done)[0]["prompt_tokens"] == len(ids("<user>hello"))


def test_what_cannot_be_answered_is_reported_and_the_rest_goes_on(serve):
    done = serve('short\n{"text": 1}\n' + "x" * 100 + "\nlast\n", "--json", "--slots", "32")
    assert done.exit_code == 1
    assert sorted(each["prompt"] for each in answers_in(done)) == ["last", "short"]
    _, bad_line, too_long = done.stderr.splitlines()
    assert bad_line.startswith("radixkv: line 2 must be a JSON object")
    assert too_long.startswith("radixkv: prompt 2: the prompt must have at most 32 tokens")


def test_no_prompts(serve):
    done = serve("")
    assert (done.exit_code, done.stdout) == (0, "")


def test_prompts_are_lines_of_text_or_of_json():
    lines = ["a b \n", "\n", '{"prompt": "c\\nd", "id": 3}\n', '{"prompt": 5}\n', "{x\n", '["e"]\n']
    shown = [str(each).split(" must ")[0] for each in parse(io.StringIO("".join(lines)))]
    assert shown == ["a b", "c\nd", "line 4", "line 5", '["e"]']


def test_a_line_that_is_not_text_is_reported_and_the_rest_goes_on(run, tiny_model, tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_bytes(b'first\n\xff\xfe\n{"prompt": "\\ud800"}\nlast\n')
    where = ["--model", str(tiny_model), "--prompts", str(file), "--listen", "127.0.0.1:0"]
    done = run("serve", *where, "--once", "--max-new-tokens", "2", "--json")
    assert done.exit_code == 1
    assert sorted(each["prompt"] for each in answers_in(done)) == ["first", "last"]
    _, *complaints = done.stderr.splitlines()
    assert complaints == [
        f"radixkv: line {at} must be UTF-8 text; got other bytes" for at in (2, 3)
    ]


WRONG = {
    "no such model": (["--model", "/nowhere"], 2, "/nowhere"),
    "no folder of a model": (["--model", "/dev"], 2, "no model can be read from /dev"),
    "no such prompts": (["--model", "x", "--prompts", "/nowhere"], 2, "--prompts /nowhere"),
    "open address": (["--model", "x", "--listen", "0.0.0.0:0"], 1, "open to the network"),
    "no address": (["--model", "x", "--listen", "here"], 1, "host:port or unix:path"),
    "no slots": (["--model", "x", "--slots", "0"], 2, "num_slots"),
    "policy": (["--model", "x", "--policy", "best"], 2, "best"),
}


@pytest.mark.parametrize(("arguments", "code", "says"), WRONG.values(), ids=WRONG)
def test_what_cannot_start_is_one_line(run, arguments, code, says):
    done = run("serve", *arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.startswith("radixkv: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def test_a_taken_address(run, server, tiny_model):
    done = run("serve", "--model", str(tiny_model), "--listen", server.address)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "taken" in done.stderr


@pytest.mark.parametrize("names", ["sglang", "vllm"])
def test_what_is_cached_is_published_as_events(serve, tmp_path, names):
    zmq = pytest.importorskip("zmq")
    address = f"ipc://{tmp_path}/events"
    with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
        subscriber.reconnect_ivl = 1
        subscriber.connect(address)
        subscriber.subscribe(b"")
        batches = b""
        for _ in range(5):  # a subscriber misses what is published before it is connected
            done = serve(
                "".join(f"{SHARED}{n}\n" for n in range(9)),
                "--kv-events", address, "--kv-block-size", "4", "--kv-names", names,
            )  # fmt: skip
            assert done.exit_code == 0, done.stderr
            while subscriber.poll(500):
                batches += subscriber.recv_multipart()[-1]
            if b"BlockStored" in batches:
                return
    pytest.fail(f"five runs published {batches!r}")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--kv-events-replay", "tcp://127.0.0.1:*"], "--kv-events must be given with"),
        (["--kv-events", "nowhere"], "cannot publish events at nowhere"),
        (["--kv-events", "tcp://127.0.0.1:*", "--kv-names", "x"], "--kv-names must be one of"),
        (["--kv-events", "tcp://127.0.0.1:*", "--kv-block-size", "0"], "block_size must be"),
    ],
)
def test_events_that_cannot_be_published_are_refused(serve, flags, said):
    pytest.importorskip("zmq")
    done = serve("one\n", *flags)
    assert done.exit_code != 0
    assert said in done.stderr
