"""Figures side by side: two different amounts never read alike."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ppsolve.models.core.result import HeuristicEntry, Result, Versions
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.api.kinds import lower, parse_instance
from ppsolve.solver.run.progress import Progress
from ppsolve.solver.views.figures import at_most, figure, figures
from ppsolve.solver.views.progress import LiveLine, run_words
from ppsolve.solver.views.reports import comparison, entry_report, report, summary_line
from ppsolve.solver.views.schedule_view import peak_text
from tests.views.shorthands import describe_problem, view_of_any

CLOSE = 100.0000001
"""Reads like 100 with six digits."""


def drawn(renderable):
    console = Console(width=140, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


@pytest.fixture
def result():
    entries = [
        HeuristicEntry(name=name, status="feasible", value=value, gap=1e-9)
        for name, value in (("gpipe", 100), ("1f1b", CLOSE), ("zb", 100.5))
    ]
    return Result(
        instance="demo", status="FEASIBLE", objective="makespan", time_unit="us",
        value=CLOSE, makespan=CLOSE, device_span=100.0000002, bound=100, gap=1e-9,
        stop_reason="time_limit", wall_seconds=1.0, versions=Versions(ppsolve="0", python="3"),
        heuristics=tuple(entries),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((0.999999999, 1), ["0.999999999", "1"]),
        ((1.23456789, 2.5), ["1.23457", "2.5"]),
        ((1e-20, 2e-20), ["0.00000000000000000001", "0.00000000000000000002"]),
        ((0.1 + 0.2, 0.3), ["0.30000000000000004", "0.3"]),
        ((5, 5.0, None), ["5", "5", "-"]),
        ((None, None), ["-", "-"]),
        ((), []),
        ((float("inf"), 1), ["inf", "1"]),
    ],
)
def test_figures(values, texts):
    assert figures(*values) == texts


@given(
    st.lists(
        st.floats(-1e15, 1e15).filter(lambda x: x == 0 or abs(x) > 1e-30), max_size=4
    )
)
def test_different_numbers_read_differently(values):
    texts = figures(*values)
    assert len(set(texts)) == len(set(values))
    if texts != [figure(value) for value in values]:
        assert len({figure(value) for value in values}) < len(set(values))


def test_memory_and_its_capacity():
    assert peak_text(1.0, 0.999999999) == "1 of 0.999999999"
    assert peak_text(4.0, 4.0) == "4 of 4"
    assert peak_text(40, 45, "GB") == "40 of 45 GB"
    assert peak_text(0.999999999) == "1"


def test_peaks_of_a_schedule():
    memory = {"capacity": 0.9999999, "activation": 1}
    times = {"forward": 1, "backward": 2}
    data = {"kind": "pipeline", "num_devices": 1, "num_microbatches": 1, "times": times}
    problem = lower(parse_instance({**data, "memory": memory}))
    text = drawn(view_of_any("one", Schedule(problem, np.array([0, 1]))))
    assert "1 of 0.9999999" in text


def test_work_of_devices():
    times = {"forward": [100, CLOSE], "backward": 1}
    data = {"kind": "pipeline", "num_devices": 2, "num_microbatches": 1, "times": times}
    instance = parse_instance(data)
    text = drawn(describe_problem(instance, lower(instance)))
    assert "101 to 101.0000001 us" in text
    same = parse_instance({**data, "times": {"forward": 100, "backward": 1}})
    assert "work per device  101 us " in drawn(describe_problem(same, lower(same)))


def test_results(result):
    assert "FEASIBLE 100.0000001 us, bound 100, gap <0.01 %" in drawn(
        summary_line(result)
    )
    lines = drawn(report(result)).splitlines()
    assert any("makespan" in line and "100.0000001 us" in line for line in lines)
    assert any("device span" in line and "100.0000002 us" in line for line in lines)
    assert any("gpipe" in line and " 100 " in line for line in lines)
    assert any("1f1b" in line and " 100.0000001 " in line for line in lines)
    rows = drawn(comparison([result, result]))
    assert "100.0000001 " in rows
    assert " 100 " in rows


def test_entries():
    instance = parse_instance(
        {"kind": "graph", "resources": [], "ops": [{"id": "a", "duration": 1}]}
    )
    entry = HeuristicEntry(
        name="x",
        status="feasible",
        makespan=CLOSE,
        device_span=100,
        peak_memory={"a": 1, "b": 2},
    )
    text = drawn(entry_report(instance, entry))
    assert "100.0000001 us" in text
    assert "100 us" in text
    absent = drawn(entry_report(instance, entry.model_copy(update={"makespan": None})))
    assert "- us" not in absent


def test_progress():
    event = Progress("incumbent", 0.5, "cp-sat", incumbent=CLOSE, bound=100, gap=1e-9)
    assert "best 100.0000001 us  bound 100 us" in run_words("us").line(event)
    live = LiveLine("demo", 10, run_words("us"))
    live(event)
    assert "best 100.0000001 us  bound 100 us  gap <0.01 %" in live.__rich__().plain
    live(replace(event, incumbent=None, gap=None))
    assert "best" not in live.__rich__().plain


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.31e-6, "2.4E-06"),
        (2.3e-6, "2.3E-06"),
        (7.4505, "7.5"),
        (0.5, "0.5"),
        (99.5, "1E+02"),
    ],
)
def test_a_figure_that_is_an_upper_limit_is_rounded_up(value, text):
    assert at_most(value) == text


@given(st.floats(1e-12, 1e12))
def test_it_is_never_below(value):
    assert value <= float(at_most(value)) <= 1.1 * value
