"""Two answers of the lab side by side."""

import json

from typer.testing import CliRunner

from radixkv.cli import app


def compare(*options):
    return CliRunner().invoke(app, ["lab", "compare", *map(str, options)])


def written(tmp_path, name, value):
    path = tmp_path / name
    path.write_text(json.dumps(value))
    return path


def test_figures_that_differ_are_shown_with_their_difference(tmp_path):
    one = {"hit_rate": 0.5, "requests": 3, "pool": 100, "setting": {"page_size": 1}, "seconds": 1}
    other = {"hit_rate": 0.6, "requests": 3, "pool": 150, "setting": {}, "seconds": 2}
    files = written(tmp_path, "a.json", one), written(tmp_path, "b.json", other)
    assert json.loads(compare(*files, "--json").stdout) == {
        "hit_rate": {"one": 0.5, "other": 0.6},
        "pool": {"one": 100, "other": 150},
        "setting.page_size": {"one": 1, "other": None},
    }
    shown = compare(*files).stdout
    assert "+10.0 points" in shown
    assert "+50.0%" in shown
    assert "requests" not in shown


def test_replays_of_one_log_in_two_settings(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps({"prompt": "abcd" * at}) for at in range(1, 20)))
    files = []
    for capacity in (80, 200):
        how = ["lab", "replay", str(log), "--tokenizer", "bytes", "--capacity", str(capacity)]
        found = json.loads(CliRunner().invoke(app, [*how, "--json"]).stdout)
        files.append(written(tmp_path, f"{capacity}.json", found))
    assert "setting.capacity" in json.loads(compare(*files, "--json").stdout)
    assert compare(files[0], files[0]).stdout == "no figure differs\n"


def test_a_file_that_is_not_an_answer(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("{")
    result = compare(path, path)
    assert result.exit_code == 2
    assert "must be what a command of the lab printed with --json" in result.stderr
