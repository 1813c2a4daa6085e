"""What narrow terminals leave out is named, with the way to see it."""

import io

import pytest
from rich.console import Console

from ppsolve import optimize, parse_instance
from ppsolve.solver.views.chart import Bar, Chart, Row
from ppsolve.solver.views.reports import report
from ppsolve.solver.views.tables import FittingTable, TableColumn, indented
from ppsolve.solver.views.terminal import TerminalConsole


def drawn(renderable, width):
    buffer = io.StringIO()
    Console(file=buffer, width=width, color_system=None).print(renderable)
    return buffer.getvalue()


TABLE = FittingTable(
    TableColumn("name", ["aaaa"], is_text=True),
    TableColumn("first\nend", ["1"], expendable=1),
    TableColumn("pipe-\nfisher", ["123456"], expendable=2),
)
"""4 + 3 + 5 + 3 + 6 columns."""


def test_a_table_says_which_columns_it_leaves_out_and_how_to_see_them():
    text = drawn(TABLE, 20)
    assert "fisher" not in text.splitlines()[1]
    words = " ".join(text.split())
    assert "left out: pipe-fisher (COLUMNS=21 shows all)" in words
    assert drawn(TABLE, 10).splitlines()[3:6] == [
        "left out: ",
        "first end,",
        "pipe-fishe",
    ]


@pytest.mark.parametrize(("shown", "width"), [(TABLE, 21), (indented(TABLE), 23)])
def test_nothing_is_left_out_from_the_width_that_it_names(shown, width):
    assert f"COLUMNS={width} " in " ".join(drawn(shown, width - 1).split())
    assert "left out" not in drawn(shown, width)


def test_where_a_width_is_given_a_wider_one_is_asked_for(capsys):
    TerminalConsole(width=20).print(TABLE)
    assert "left out: pipe-fisher (--width 21 shows all)" in " ".join(
        capsys.readouterr().out.split()
    )


def test_columns_that_stay_are_not_called_left_out():
    assert "left out" not in drawn(FittingTable(TableColumn("a long header", ["1"])), 5)


def chart(count, length, part=(0, None)):
    bars = [Bar(k * length, (k + 1) * length, "F", "F", f"F{k}") for k in range(count)]
    return Chart([Row("device 0", True, bars)], count * length, "us", part)


@pytest.mark.parametrize(
    ("part", "hint"),
    [
        ((0, None), "--from 0 --to 220 draws a part with names"),
        ((0, 220), None),
        ((1000, None), "--from 1000 --to 1200 draws a part with names"),
    ],
)
def test_a_chart_of_ops_narrower_than_columns_names_a_part(part, hint):
    """80 columns less 10 for the name and 5 for the share: 65 ops, or 22 with 3 columns each."""
    text = " ".join(drawn(chart(200, 10, part), 80).split())
    assert "ops are narrower" not in text if hint is None else hint in text


@pytest.mark.parametrize("count", [0, 1, 65])
def test_a_chart_that_is_wide_enough_has_no_hint(count):
    assert "narrower" not in drawn(chart(count, 10), 80)


def test_parts_are_named_in_plain_digits():
    assert "--from 0 --to 2200000000 draws" in drawn(chart(200, 10**8), 80)
    assert "--from 0 --to 0.0022 draws" in drawn(chart(200, 0.0001), 80)


@pytest.mark.parametrize(
    ("width", "rows"),
    [
        (17, ["few_microbatches/", "zb-6.2b-8x6-0.5p"]),
        (13, ["few_", "microbatches/", "zb-6.2b-8x6-", "0.5p"]),
        (6, ["few_", "microb", "atches", "/zb-", "6.2b-", "8x6-", "0.5p"]),
        (80, ["few_microbatches/zb-6.2b-8x6-0.5p"]),
    ],
)
def test_long_names_go_on_behind_marks(width, rows):
    name = TableColumn(
        "on", ["few_microbatches/zb-6.2b-8x6-0.5p"], is_text=True, wraps=True
    )
    lines = drawn(FittingTable(name), width).splitlines()
    assert [line.strip() for line in lines][2:] == rows


def test_the_table_of_bounds_has_the_bound_of_a_later_step():
    times = {"forward": 1, "backward": 2}
    tiny = {
        "kind": "pipeline",
        "name": "tiny",
        "num_devices": 2,
        "num_microbatches": 2,
        "times": times,
    }
    result = optimize(parse_instance(tiny))
    later = result.model_copy(update={"bound_by": "few-devices", "bound": 8.5})
    assert "few-devices" in drawn(report(later, verbose=True), 80)
    assert result.bound_by in [each.name for each in result.bounds]
    rows = [
        drawn(report(each, verbose=True), 80).splitlines() for each in (result, later)
    ]
    assert len(rows[1]) == len(rows[0]) + 1


def test_names_of_functions_go_on_behind_the_colon() -> None:
    table = FittingTable(
        TableColumn("method", ["mine.py:two_ahead"], is_text=True, wraps=True)
    )
    console = Console(width=10, record=True, file=io.StringIO())
    console.print(table)
    lines = [line.strip() for line in console.export_text().splitlines()]
    assert lines[-2:] == ["mine.py:", "two_ahead"]
