"""The page of budgets is the one that the fields and their comments make."""

from __future__ import annotations

from dataclasses import dataclass

import budgets

from ppsolve.solver.run.params import SearchParams, paths

COMMAND = "python docs/making/budgets.py"


def test_the_page_of_budgets_is_current() -> None:
    kept = budgets.PAGE.read_text(encoding="utf-8")
    assert kept == budgets.page(), f"a budget has changed: run {COMMAND}"


def test_every_budget_is_on_the_page_with_its_comment() -> None:
    rows = [
        line.split(" | ")
        for line in budgets.page().splitlines()
        if line.startswith("| `")
    ]
    assert [row[0] for row in rows] == [
        f"| `{path}`" for path, _ in paths(SearchParams())
    ]
    assert [row for row in rows if not row[2].removesuffix(" |").strip()] == []


@dataclass(frozen=True)
class Oven:
    """Budgets of a cake."""

    heat: float = 180.0  # degrees: higher bakes sooner
    eggs: int = 1_000  # "#" is no end


def test_comments_are_those_behind_fields() -> None:
    said = budgets.comments(Oven)
    assert said == {"heat": "degrees: higher bakes sooner", "eggs": '"#" is no end'}


def test_defaults_are_written_as_readers_read_them() -> None:
    table = budgets.tables(Oven(), "oven.")
    assert list(table)[-3:] == [
        "| `oven.heat` | 180 | degrees: higher bakes sooner |",
        '| `oven.eggs` | 1,000 | "#" is no end |',
        "",
    ]
