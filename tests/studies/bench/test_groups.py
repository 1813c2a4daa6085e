"""Records that stand alone: instances made again, factors, reports by factors and columns."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.bench.file import BenchRecord, read_records
from ppsolve.solver.studies.bench.report.report import Report, bench_report
from ppsolve.solver.views.bench.latex import latex_report, methods_csv
from ppsolve.solver.views.bench.sections import check_columns, sections
from tests.paths import ROOT
from tests.studies.bench.conftest import command
from tests.studies.bench.results import heuristic, proved, results

RECIPE = "tight --devices 2 --microbatches 3..5 --capacity 1.5p --forward 9..12"


def bench(*arguments: str | Path, code: int = 0) -> str:
    """Run the command and return what it says on stderr."""
    done = subprocess.run(
        command(*arguments), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results of two drawn instances and one of a file."""
    folder = tmp_path_factory.mktemp("bench")
    document = {
        "kind": "pipeline",
        "num_devices": 2,
        "num_microbatches": 2,
        "times": {"forward": 1.5, "backward": 2},
    }
    (folder / "one.json").write_text(json.dumps(document))
    output = folder / "first.jsonl"
    options = ("--recipe", RECIPE, "--count", "2", "-t", "5", "-o", output)
    bench(folder / "one.json", *options)
    return output


def test_instances_come_again_from_the_records_alone(solved: Path) -> None:
    (solved.parent / "one.json").unlink()
    again = solved.parent / "again.jsonl"
    bench(solved, "-t", "5", "-o", again)
    first, second = read_records(solved).records, read_records(again).records
    assert {r.key: r.answer() for r in first} == {r.key: r.answer() for r in second}
    kept = ("instance_document", "recipe", "recipe_seed", "factors", "family")
    by_key = {record.key: record for record in second}
    for record in first:
        for name in kept:
            assert getattr(record, name) == getattr(by_key[record.key], name)
    assert [r.recipe_seed for r in first if r.recipe == RECIPE] == [0, 1]


def test_factors_are_options_of_recipes_and_figures(solved: Path) -> None:
    drawn = [r for r in read_records(solved).records if r.recipe is not None]
    for record in drawn:
        assert record.factors["p"] == 2
        assert record.factors["memory"] == 1.5
        assert record.factors["forward"] == "9..12"
        assert record.factors["m/p"] == record.factors["m"] / 2


def test_a_record_of_another_instance_is_refused(solved: Path) -> None:
    lines = [json.loads(line) for line in solved.read_text().splitlines()]
    drawn = next(line for line in lines if line.get("recipe"))
    for change, words in (
        ({"recipe_seed": 7}, "another instance now"),
        ({"recipe": None, "recipe_seed": None}, "neither its instance nor a recipe"),
    ):
        wrong = solved.parent / "wrong.jsonl"
        wrong.write_text(json.dumps(drawn | change) + "\n")
        assert words in bench(wrong, "-o", solved.parent / "x.jsonl", code=2)


def record(key: str, p: int, memory: float, **changes: Any) -> BenchRecord:
    return proved(
        key=key,
        content=key,
        instance=key,
        family="any",
        factors={"p": p, "memory": memory, "shape": "even"},
        value=100,
        bound=100,
        **changes,
    )


def by_factors(*by: str, columns: tuple[str, ...] = ()) -> Report:
    """Return the report of four instances by factors."""
    full = heuristic("gpipe", None, status="infeasible", reason="memory")
    half = heuristic("gpipe", 150)
    records = results(
        record("a", 2, 1, heuristics=[half]),
        record("b", 10, 1, heuristics=[full]),
        record("c", 2, 0.5, heuristics=[full]),
        record("d", 2, 1, heuristics=[heuristic("gpipe", 110)]),
    )
    return bench_report(records, "r.jsonl", by=by, columns=columns)


def test_records_are_grouped_by_factors_in_the_order_of_numbers() -> None:
    report = by_factors("p", "memory")
    names = [family.total.family for family in report.families]
    assert names == ["p=2 memory=0.5", "p=2 memory=1", "p=10 memory=1"]
    assert [f.total.instances for f in report.families] == [1, 2, 1]
    assert [f.total.family for f in by_factors("shape").families] == ["shape=even"]


def test_an_unknown_factor_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r'no record has a factor "memry".*memory'):
        by_factors("memry")


def test_methods_by_family_have_means_and_infeasible_counts() -> None:
    report = by_factors("p", "memory")
    (grid,) = (s for s in sections(report) if s.title == "Methods by family")
    assert grid.sheet is not None
    rows = {row[0]: row[1:] for row in grid.sheet.rows}
    # Half and a tenth above 100 on the two solved ones: 30 % on average.
    assert rows["gpipe"] == ("- (1)", "30.00", "- (1)")
    assert rows["ppsolve"] == ("0.00", "0.00", "0.00")
    lines = list(csv.reader(io.StringIO(methods_csv(report))))
    assert lines[0][4:7] == [f"p-2-memory-1-{part}" for part in PARTS]
    (gpipe,) = (line for line in lines if line[0] == "gpipe")
    assert gpipe[1:] == ["", "1", "0", "0.3", "0", "0", "", "1", "0"]


PARTS = ("mean", "infeasible", "not-applicable")


def test_latex_has_the_grid_and_every_column_of_figures() -> None:
    text = latex_report(by_factors("memory"))
    assert r"gpipe & - (1) & 30.00 (1) \\" in text
    methods = re.search(r"^method & .*wins.*$", text, re.MULTILINE)
    assert methods is not None
    for name in ("solved", "proved", "infeasible", "n.a.", "median time"):
        assert name in methods[0]


def test_columns_are_chosen_by_how_they_begin() -> None:
    report = by_factors("p", columns=("infeas", "mean"))
    sheets = {s.title: s.sheet for s in sections(report) if s.sheet is not None}
    titles = [column.title for column in sheets["Methods"].columns]
    assert titles == ["method", "infeasible", "mean %"]
    assert [c.title for c in sheets["Families"].columns] == ["family", "mean gap"]
    assert "Near the best" not in sheets
    assert [c.title for c in sheets["Methods by family"].columns][1:] == [
        "p=2",
        "p=10",
    ]
    check_columns(report)
    with pytest.raises(InputError, match='no column begins with "infesible"'):
        check_columns(by_factors("p", columns=("infesible",)))
