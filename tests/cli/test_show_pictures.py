"""``ppsolve show --png, --svg, --pdf``: what it draws into files, and what it refuses."""

import json
import sys

import pytest
from typer.testing import CliRunner

import ppsolve
from ppsolve.solver.cli.main import build

pytest.importorskip("matplotlib")

INSTANCE = {
    "kind": "pipeline",
    "name": "tiny",
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 10, "backward": 20.5},
    "memory": {"capacity": 2, "activation": 1},
}
CURVE = {
    "schema": 1,
    "kind": "curve",
    "instance": "tiny",
    "over": "capacity",
    "objective": "makespan",
    "time_unit": "us",
    "points": [
        {"at": 1, "status": "FEASIBLE", "value": 12, "bound": 10, "gap": 0.1667},
        {"at": 2, "status": "OPTIMAL", "value": 9, "bound": 9, "gap": 0},
    ],
}
BEGINNINGS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.fixture(scope="module")
def result():
    return ppsolve.optimize(ppsolve.parse_instance(INSTANCE), workers=1)


@pytest.fixture
def here(tmp_path, monkeypatch, result):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.json").write_text(json.dumps(INSTANCE))
    (tmp_path / "curve.json").write_text(json.dumps(CURVE))
    result.save(tmp_path / "result.json")
    return tmp_path


@pytest.fixture
def show(here):
    def invoke(*args):
        return CliRunner().invoke(build(), ["show", *args])

    return invoke


def said(svg):
    """Return the texts of an SVG picture: glyphs carry each text in a comment before them."""
    return [
        line.strip()[5:-4] for line in svg.read_text().splitlines() if "<!-- " in line
    ]


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_a_picture_replaces_the_chart(show, here, kind):
    done = show("result.json", f"--{kind}", "out")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    assert (here / "out").read_bytes().startswith(BEGINNINGS[kind])


@pytest.mark.slow
def test_equal_commands_write_equal_files(show, here):
    show("result.json", "--svg", "a.svg", "--png", "a.png", "--pdf", "a.pdf")
    show("result.json", "--svg", "b.svg", "--png", "b.png", "--pdf", "b.pdf")
    for kind in BEGINNINGS:
        assert (here / f"a.{kind}").read_bytes() == (here / f"b.{kind}").read_bytes()


def test_fonts_are_embedded_in_a_pdf(show, here):
    show("result.json", "--pdf", "a.pdf")
    assert b"/FontFile2" in (here / "a.pdf").read_bytes()


def test_the_schedule_of_a_result_is_drawn_with_the_memory_of_its_instance(show, here):
    show("result.json", "--svg", "a.svg")
    assert {"F forward", "B backward", "memory in use", "capacity", "bound"} <= set(
        said(here / "a.svg")
    )


def test_a_heuristic_of_an_instance(show, here):
    done = show("tiny.json", "--heuristic", "gpipe", "--svg", "a.svg", "--title", "")
    assert done.exit_code == 0, done.stderr
    written = said(here / "a.svg")
    assert "B1" in written
    assert "tiny, gpipe" not in written


def test_a_part_of_the_time(show, here):
    show("result.json", "--svg", "a.svg", "--to", "20", "--title", "a part")
    written = said(here / "a.svg")
    assert "a part" in written
    assert "B1" not in written


def test_other_pictures(show, here):
    show("result.json", "--picture", "gaps", "--svg", "gaps.svg")
    assert {"1f1b", "over the best schedule"} <= set(said(here / "gaps.svg"))
    show("result.json", "--picture", "memory", "--svg", "memory.svg")
    assert "memory in use" in said(here / "memory.svg")
    assert "F forward" not in said(here / "memory.svg")


def test_a_curve(show, here):
    done = show("curve.json", "--svg", "a.svg")
    assert (done.exit_code, done.stderr) == (0, "")
    assert {"capacity", "makespan (us)", "best schedule, proved optimal"} <= set(
        said(here / "a.svg")
    )


def test_a_curve_on_the_terminal(show):
    assert (
        "tiny: makespan over capacity, 2 points, 1 proved" in show("curve.json").stdout
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["result.json", "--picture", "gaps"], "--picture: this option needs --png, --svg or"),
        (["result.json", "--title", "x"], "--title: this option needs --png, --svg or --pdf FILE"),
        (["result.json", "--png", "-"], "--png: expected a file, got -"),
        (["result.json", "--png", "no/a.png"], "no/a.png: --png: the directory no does not exist"),
        (["result.json", "--png", "a", "--svg", "a"], "a: --svg: --png writes there too"),
        (["result.json", "--png", "result.json"], "result.json: --png: this is the input result"),
        (["result.json", "--png", "a", "--inches", "1"], "--inches: expected 2 to 40, got 1"),
        (["result.json", "--png", "a", "--picture", "curve"], "result.json: --picture curve: this"),
        (["curve.json", "--png", "a", "--picture", "gantt"], "curve.json: --picture gantt: this"),
        (["tiny.json", "--png", "a"], "tiny.json: expected also a RESULT or --heuristic NAME"),
        (["result.json", "--png", "a", "--order"], "--order: expected either an order or a pict"),
        (["curve.json", "tiny.json"], "curve.json: expected this file alone; it needs no instance"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(show, here, args, message):
    before = sorted(here.iterdir())
    done = show(*args)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {message}")
    assert sorted(here.iterdir()) == before


def test_matplotlib_is_missing(show, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = show("result.json", "--pdf", "a.pdf")
    assert done.exit_code == 2
    assert (
        "--pdf: needs matplotlib, which is not installed: pip install 'ppsolve[plot]'"
        in done.stderr
    )
