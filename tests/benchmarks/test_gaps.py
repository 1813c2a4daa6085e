"""The command behind docs/data/gaps.md: tables have their places, a small selection is measured."""

from __future__ import annotations

import argparse

import gaps
import pytest


def options(**given: object) -> argparse.Namespace:
    return argparse.Namespace(**{"seeds": "0-0", "points": 1, "workers": 1, **given})


@pytest.mark.parametrize("name", [*gaps.SECTIONS, "machine"])
def test_each_table_has_its_place_on_the_page(name: str) -> None:
    page = gaps.PAGE.read_text(encoding="utf-8")
    again = gaps.written(page, name, "new\ntext")
    assert f"<!-- measured: {name} -->\nnew\ntext\n<!-- end -->" in again
    assert len(again.split("<!-- end -->")) == len(page.split("<!-- end -->"))


def test_a_missing_mark_is_told() -> None:
    with pytest.raises(
        SystemExit, match="expected the marks of scan once, found them 0 times"
    ):
        gaps.written("no marks", "scan", "text")


def test_a_small_selection_is_measured() -> None:
    head, line, row = gaps.measure_scan(options()).splitlines()
    assert (head.count("|"), line.count("---")) == (7, 6)
    assert row.startswith("| 1 | 2,077,896 | memory-cycle | ")
    assert row.endswith("| 2,077,896 | 0.00 |")
    uneven = gaps.measure_uneven(options())
    assert uneven.startswith(
        "1 of 1 are proved optimal; on 1 of them a heuristic is optimal."
    )
    assert "| 1f1b | 0 | 25.28 | 25.28 | 25.28 | 1 |" in uneven


def test_passes_on_a_compiled_graph_are_measured_at_equal_memory() -> None:
    passes, graphs = gaps.measure_compiled(options()).split("\n\n")
    # Two gathers at once are 40 % more memory, and then the best order gains as much.
    assert "| inductor-recommended | 0 of 1 | 15.66 | 15.66 | 1 | 40.00 |" in passes
    assert "| simple-overlap | 1 of 1 | 0.00 | 0.00 | 0 | 0.00 |" in passes
    assert graphs.endswith("| fsdp-forward | 16 | 1,201 | 1,046 | 1,046 | 12.89 |")
