"""``ppsolve optimize --placements``: one instance, several placements, the best first."""

import json

import pytest
from typer.testing import CliRunner

from ppsolve.solver.cli.main import build

EQUAL = {
    "kind": "pipeline",
    "name": "equal",
    "num_devices": 2,
    "num_microbatches": 4,
    "times": {"forward": 2, "backward": 4},
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "equal.json").write_text(json.dumps(EQUAL))
    return lambda *args: CliRunner().invoke(build(), ["optimize", "equal.json", *args])


def test_a_list_of_results_the_best_first(run, tmp_path):
    done = run("--placements", "linear,vshape,interleaved:2", "-o", "all.json", "-q")
    assert done.exit_code == 0
    found = json.loads((tmp_path / "all.json").read_text())
    assert [(each["instance"], each["value"]) for each in found][::2] == [
        ("equal vshape", 27),
        ("equal linear", 30),
    ]
    assert [line.split(":")[0] for line in done.stdout.splitlines()][::2] == [
        "equal vshape",
        "equal linear",
    ]


def test_a_table_has_a_row_for_each(run):
    rows = [
        line.split()
        for line in run("--placements", "linear,vshape").stdout.splitlines()
    ]
    assert [row[:4] for row in rows if row[:1] == ["equal"]] == [
        ["equal", "vshape", "OPTIMAL", "27"],
        ["equal", "linear", "OPTIMAL", "30"],
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--placements", "linear,zigzag"),
            "--placements: expected linear, interleaved, vshape",
        ),
        (("--placements", ""), "--placements: expected linear, interleaved"),
        (
            ("--placements", "vshape:3"),
            "equal.json: --placements stages_per_device: expected 2",
        ),
        (
            ("--placements", "linear", "--start", "x.json"),
            "--start: this option cannot be used with",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(run, arguments, words):
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
