"""The report: what it studies, and a page that needs nothing else."""

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from radixkv.cli import app
from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import ListedLog
from radixkv.lab.logs.tokenizing import ByteTokenizer
from radixkv.lab.logs.workloads import generate
from radixkv.lab.replay.models import SHAPES
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.scheduling import SCHEDULINGS
from radixkv.lab.replay.setting import Setting
from radixkv.lab.report.misses import explain
from radixkv.lab.report.page import render
from radixkv.lab.report.plots import COLOURS, line_of, plots
from radixkv.lab.report.study import PAGE_SIZES, study
from radixkv.tree import POLICIES
from tests.lab.logs import ask


@pytest.fixture(scope="module")
def log():
    return generate("agents", requests=60)


@pytest.fixture(scope="module")
def studied(log):
    return study(
        log,
        Setting(capacity=8_000),
        policies=["fifo"],
        capacities=[4_000, 20_000],
        shape=SHAPES["qwen2.5-7b"],
        jobs=1,
    )


def test_a_study_is_its_replays(log, studied):
    assert studied.policies == ["lru", "fifo"]
    assert studied.found.hit_rate == replay(log, Setting(capacity=8_000)).hit_rate
    assert studied.ideal.hit_rate == replay(log).hit_rate
    assert studied.by_capacity(policy="fifo") == [
        replay(log, Setting(capacity=capacity, policy="fifo")).hit_rate
        for capacity in (4_000, 20_000)
    ]
    assert studied.by_page_size(None) == [
        replay(log, Setting(page_size)).hit_rate for page_size in PAGE_SIZES
    ]
    assert studied.explained.totals() == explain(log, Setting(capacity=8_000)).totals()
    assert studied.prefill["saved_flops"] > 0
    assert [*studied.clairvoyant] == [4_000, 8_944, 20_000]
    assert all(
        rate >= found
        for rate, found in zip(
            (studied.clairvoyant[at] for at in (4_000, 20_000)), studied.by_capacity(), strict=True
        )
    )
    json.dumps(studied.to_dict(), default=str)


class Page(HTMLParser):
    """What a page shows and what it would load."""

    def __init__(self, text):
        super().__init__()
        self.text, self.loads, self.open = "", [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        names = {"src", "href", "xlink:href", "data", "action"}
        self.loads += [value for name, value in attrs if name in names]
        if tag in ("ol", "li", "table", "figure", "svg", "h2"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in ("ol", "li", "table", "figure", "svg", "h2"):
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_needs_nothing_else(studied):
    page = render(studied, name="my log", about="Read in file order.", command="radixkv lab report")
    shown = Page(page)
    assert shown.open == []
    # Inside an SVG, links lead to its own parts.
    assert all(link.startswith("#") for link in shown.loads)
    assert "@import" not in page
    assert "<script" not in page
    assert set(re.findall(r"url\((.)", page)) <= {"#"}
    for expected in (
        "What a prefix cache does for my log",
        "Why tokens were computed",
        "8,000",
        "qwen2.5-7b",
        "longest-match",
        "Read in file order.",
        "points more than one",
    ):
        assert expected in shown.text
    svgs = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(svgs) == 6
    for svg in svgs:
        whole = ElementTree.fromstring(svg)
        assert whole.tag.endswith("svg")
        assert (whole.get("role"), len(whole.get("aria-label")) > 20) == ("img", True)
    assert "Hit rate by capacity, from 4,000 to 20,000 tokens: lru" in page


def test_a_page_can_be_read_on_a_phone(studied):
    page = render(studied, name="n", about="", command="c")
    # Plots are no narrower than at which their text can be read; what is wide moves alone.
    assert "figure svg { min-width: 34rem; }" in page
    for wide in ("<table", "<svg"):
        assert page.count(wide) == page.count(f'<div class="wide">{wide}') > 0
    sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", page)]
    widths = [float(width) for width in re.findall(r'<svg[^>]* width="([\d.]+)pt"', page)]
    # 34 rem are 544 pixels; what is 10 in a plot must come out as 9 pixels at least.
    assert sizes
    assert min(sizes) * 544 / max(widths) >= 9
    assert "width=device-width" in page


def test_text_of_a_log_is_shown_as_text():
    log = ask("<script>alert(1)</script>" + "x" * 50, "<script>alert(1)</script>" + "y" * 50)
    found = study(log, Setting(), policies=[], capacities=[100], tokenizer=ByteTokenizer(), jobs=1)
    page = render(found, name="<b>", about="", command="&")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "What a prefix cache does for &lt;b&gt;" in page
    assert len(re.findall("<svg", page)) == 5  # every request is a session of its own


def test_the_same_study_gives_the_same_page(studied):
    one, other = (render(studied, name="n", about="", command="c") for _ in range(2))
    assert one == other


def test_the_command(tmp_path):
    path, out = tmp_path / "log.jsonl", tmp_path / "report.html"
    rows = [{"prompt": "abcd" * at, "session": str(at % 3)} for at in range(1, 30)]
    path.write_text("\n".join(map(json.dumps, rows)))
    how = ["lab", "report", str(path), "--tokenizer", "bytes", "--capacity", "64", "--jobs", "1"]
    made = CliRunner().invoke(app, [*how, "--out", str(out), "--capacities", "32,64", "--json"])
    assert made.exit_code == 0, made.output
    answer = json.loads(made.stdout)
    assert answer["report"] == str(out)
    assert answer["capacities"] == [32, 64]
    assert set(answer["hit_rates_by_scheduling"]) == {"arrival", "longest-match"}
    assert "log.jsonl" in Page(out.read_text()).text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--out", "{}"], "--out {}: it is a folder"),
        (["--out", "{}/none/report.html"], "--out {}/none/report.html: there is no folder"),
        (["--capacities", "0,64"], "--capacities must be above 0 for a report; got '0,64'"),
    ],
)
def test_what_cannot_be_written_or_drawn_is_an_error_before_the_log_is_read(
    tmp_path, wrong, message
):
    options = [each.format(tmp_path) for each in wrong]
    result = CliRunner().invoke(app, ["lab", "report", str(tmp_path / "no log"), *options])
    assert result.exit_code == 2
    assert message.format(tmp_path) in result.stderr


def test_every_policy_has_a_line_of_its_own(log):
    assert len({line_of(at) for at in range(2 * len(COLOURS))}) == 2 * len(COLOURS)
    assert 2 * len(COLOURS) >= len(POLICIES)
    policies = ["fifo", *(each for each in POLICIES if each not in ("lru", "fifo")), "lru"]
    few = ListedLog(log[:6])
    found = study(few, Setting(policy="fifo"), policies=policies, capacities=[500], jobs=1)
    assert all(colour.lower() in plots(found)["capacity"] for colour in COLOURS)


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"in_flight": 2},
        {"scheduling": SCHEDULINGS["longest-match"]},
        {"capacity_of": "pool"},
    ],
)
def test_lru_is_drawn_between_its_points_only_where_it_is_known(log, other):
    found = study(
        log,
        Setting(**{"capacity_of": "cache"} | other),
        policies=[],
        capacities=[4_000, 20_000],
        jobs=1,
    )
    page = render(found, name="n", about="", command="c")
    assert (found.curve is None) == bool(other)
    assert ("LRU is drawn exactly" in page) == (not other)
    assert "a reference and no bound" in page


def test_a_study_takes_capacities_that_can_be_drawn(log):
    with pytest.raises(InvalidArgumentError, match=r"capacity must be .* got 0"):
        study(log, Setting(), policies=[], capacities=[64, 0])
