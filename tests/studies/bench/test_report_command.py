"""``ppsolve bench report`` as users run it: exit codes, files, and one clear error each."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from ppsolve.solver.cli.main import build
from tests.studies.bench.results import bounds, crashed, proved, unproved, written

Run = Callable[..., Any]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "r.jsonl")
    return tmp_path


@pytest.fixture
def run(here: Path) -> Run:
    def invoke(*arguments: str) -> Any:
        return CliRunner().invoke(build(), ["bench", "report", *arguments])

    return invoke


def test_tables_on_the_terminal(run: Run) -> None:
    done = run("r.jsonl")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "3 instances, 2 solved, 1 proved, mean gap 5.00 %, 1 failed"
    )
    lines = done.stdout.split("\n")
    assert lines == [line.rstrip() for line in lines]


def test_json_on_stdout(run: Run) -> None:
    found = json.loads(run("r.jsonl", "--json").stdout)
    assert found["every"]["total"]["instances"] == 3


def test_latex_on_stdout(run: Run, here: Path) -> None:
    done = run("r.jsonl", "--latex", "-o", "r.tex")
    assert (done.exit_code, done.stdout) == (
        0,
        (here / "r.tex").read_text(encoding="utf-8"),
    )
    assert done.stdout.count(r"\begin{tabular}") == 6


def test_files_by_their_suffix(run: Run, here: Path) -> None:
    names = ("r.md", "r.csv", "r.JSON", "r.html", "r.tex", "r-Profiles.csv")
    done = run("r.jsonl", *(word for name in names for word in ("-o", name)))
    assert (done.exit_code, done.stderr) == (0, "")
    beginnings = [(here / name).read_text(encoding="utf-8")[:12] for name in names]
    assert beginnings == [
        "# Benchmark ", "family,role,", '{\n "schema":', "<!doctype ht", "% \\usepackag",
        "ratio,ppsolv",
    ]  # fmt: skip
    assert sorted(path.name for path in here.iterdir()) == sorted([*names, "r.jsonl"])


def test_pictures_as_files(run: Run, here: Path) -> None:
    written(
        here / "x.jsonl",
        proved(family="a/b"),
        proved(key="k9", family="a:b"),
        crashed(),
    )
    assert run("x.jsonl", "--pictures", "new/folder").exit_code == 0
    names = sorted(path.name for path in (here / "new" / "folder").iterdir())
    assert names == [
        "anytime.svg", "profiles-a-b-.svg", "profiles-a-b.svg", "profiles.svg",
    ]  # fmt: skip
    for name in names:
        ElementTree.parse(here / "new" / "folder" / name)


@pytest.mark.parametrize(
    ("before", "code"),
    [
        (unproved(value=195), 7),
        (unproved(value=200), 0),
        (unproved(value=205), 0),
        (unproved(value=170, bound=160), 5),
        (unproved(value=195, family="other"), 0),
    ],
)
def test_regressions_and_contradictions_have_exit_codes(
    run: Run, here: Path, before: object, code: int
) -> None:
    written(here / "old.jsonl", before)
    assert run("r.jsonl", "old.jsonl").exit_code == code


def test_regressions_are_named(run: Run, here: Path) -> None:
    written(here / "old.jsonl", unproved(value=195))
    out = run("r.jsonl", "old.jsonl").stdout
    assert "\nRegressions\n1 instance is in both files.\n" in out
    row = next(line for line in out.splitlines() if line.startswith("value "))
    assert row.split() == ["value", "a/two", "195", "200", "2.56", "%"]
    assert run("r.jsonl", "old.jsonl", "--tolerance", "0.03").exit_code == 0


def test_a_contradiction_in_one_file(run: Run, here: Path) -> None:
    written(here / "x.jsonl", proved(bounds=bounds(work=101)))
    done = run("x.jsonl", "-o", "x.md")
    assert done.exit_code == 5
    assert "Contradictions" in done.stdout
    assert (here / "x.md").exists()


def test_a_torn_line_is_left_out_and_told(run: Run, here: Path) -> None:
    path = here / "r.jsonl"
    path.write_bytes(path.read_bytes() + b'{"schema": 1, "ke')
    done = run("r.jsonl")
    assert (done.exit_code, done.stderr) == (
        0,
        "note: r.jsonl: the last line was not written whole, left out\n",
    )


FORMATS = "--output: expected a file name ending in .md, .csv, .json, .html, .tex, profiles.csv"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.jsonl"], "none.jsonl: no such file"),
        (["."], ".: expected a file, this is a directory"),
        (
            ["empty.jsonl"],
            "empty.jsonl: expected results of a benchmark, there are none",
        ),
        (
            ["r.jsonl", "empty.jsonl"],
            "empty.jsonl: expected results of a benchmark, there are none",
        ),
        (["bad.jsonl"], "bad.jsonl: line 2: "),
        (["r.jsonl", "-o", "r.txt"], f"r.txt: {FORMATS}"),
        (["r.jsonl", "-o", "r"], f"r: {FORMATS}"),
        (
            ["r.jsonl", "-o", "no/r.md"],
            "no/r.md: --output: the directory no does not exist",
        ),
        (
            ["r.jsonl", "-o", "r.md", "-o", "./r.md"],
            "r.md: --output: it is given twice",
        ),
        (
            ["r.jsonl", "-o", "link.md"],
            "link.md: --output: this is the input r.jsonl, give another",
        ),
        (
            ["r.jsonl", "--pictures", "r.jsonl"],
            "r.jsonl: --pictures: expected a folder, this is a",
        ),
        (
            ["r.jsonl", "twice.jsonl"],
            'twice.jsonl: line 2: instance: "two" of family "a" appears',
        ),
        (
            ["r.jsonl", "ms.jsonl"],
            'r.jsonl: time_unit: "two" of family "a" is in us, in ms.jsonl',
        ),
    ],
)
def test_errors(run: Run, here: Path, arguments: list[str], message: str) -> None:
    (here / "empty.jsonl").touch()
    (here / "bad.jsonl").write_bytes(proved().line() + b'{"schema": 1}\n')
    (here / "link.md").symlink_to(here / "r.jsonl")
    written(here / "twice.jsonl", unproved(), unproved(key="k9"))
    written(here / "ms.jsonl", unproved(time_unit="ms"))
    before = sorted(here.rglob("*"))
    done = run(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert sorted(here.rglob("*")) == before


def test_two_forms_at_once(run: Run, here: Path) -> None:
    done = run("r.jsonl", "--json", "--latex")
    assert done.exit_code == 2
    error = json.loads(done.stderr)["error"]
    assert (error["code"], error["field"]) == ("conflict", "--json, --latex")


def test_a_folder_that_cannot_be_made(run: Run, here: Path) -> None:
    done = run("r.jsonl", "--pictures", "r.jsonl/inner", "-o", "r.md")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: r.jsonl/inner: --pictures: cannot be made: ")
    assert not (here / "r.md").exists()


def test_without_matplotlib(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = run("r.jsonl", "--pictures", "p")
    assert done.exit_code == 2
    assert done.stderr == (
        "error: --pictures: needs matplotlib, which is not installed: pip install 'ppsolve[plot]'\n"
    )
    done = run("r.jsonl", "-o", "r.html")
    assert done.exit_code == 0
    assert done.stderr.startswith(
        "warning: the page has no pictures, they need matplotlib"
    )
    assert "<svg" not in (here / "r.html").read_text(encoding="utf-8")
