"""What is drawn and said of K-FAC work: iterations, letters, units, broken rules."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.core.result import Result, ScheduleDocument, ScheduledOp, Versions
from ppsolve.models.documents.base import validated
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.result import (
    RefreshEntry,
    RefreshResult,
    TieBreakEntry,
    broken_rules,
)
from ppsolve.solver.api.api import simulate
from ppsolve.solver.api.kinds import kind_of, load_instance
from ppsolve.solver.kinds.kfac.heuristics import CAUSAL
from ppsolve.solver.run.progress import Progress
from ppsolve.solver.views.chart import Bar, Chart, Row
from ppsolve.solver.views.colours import KFAC, PIPELINE, letter_of
from ppsolve.solver.views.kfac import impossible_devices, iteration_of
from ppsolve.solver.views.progress import run_words
from ppsolve.solver.views.reports import comparison, entry_line, report, summary_line
from ppsolve.solver.views.terminal_chart import Axis
from ppsolve.solver.views.wording import ITERATIONS, with_unit
from tests.paths import ROOT
from tests.views.shorthands import view_of_document, view_of_schedule
from tests.views.test_views import drawn, run_lines

WIDTHS = (40, 60, 80, 120, 200)


def entry(name="pipefisher", **fields):
    return RefreshEntry(name=name, **{"status": "feasible", **fields})


def result(**fields):
    """A result of two devices that take 3 and 2 iterations."""
    found = {
        "instance": "demo", "status": "OPTIMAL", "objective": "iterations", "time_unit": "ns",
        "value": 3, "makespan": 5500, "device_span": 5500, "bound": 3, "bound_by": "work",
        "gap": 0.0, "bubble_ratio": 0.125, "best_by": "cp-sat", "stop_reason": "proved",
        "wall_seconds": 1.5, "versions": Versions(ppsolve="0", python="3"), "iterations": 3,
        "iterations_of": [3, 2], "usage_of": [90.5, 80.25], "bubbles_of": [12345, 1000],
        "peak_saved_of": [4, 2.5], "oldest_of": [4, None], "bound_of": [3, 2],
        "bounds_by": ["work", "cp-sat"],
    }  # fmt: skip
    return RefreshResult(**{**found, **fields})


def op(name, kind, start, end, device=0, **labels):
    return ScheduledOp(
        id=name, kind=kind, start=start, end=end, device=device, **labels
    )


def document(*ops):
    return ScheduleDocument(time_unit="us", ops=ops)


REPORT = """\
demo: OPTIMAL, 3 iterations
  iterations    3  by cp-sat
  lower bound   3 iterations  by work
  gap           0.00 %
  bubble ratio  0.1250
  staleness     9,000 ns, at least 8,500 ns (total completion time of inversions)
  stopped       proved after 1.5 s

                                               bubbles    peak    oldest
  device   iterations   bound by     usage   left (ns)   saved   inverse
  ──────────────────────────────────────────────────────────────────────
       0            3   3 work     90.50 %      12,345       4     4 it.
       1            2   2 cp-sat   80.25 %       1,000     2.5         -

                                      over
  heuristic           iterations      best   bubble   status
  ──────────────────────────────────────────────────────────────────────────────────────────────────
  pipefisher-causal            4   33.33 %        -   feasible
  pipefisher                   2         -        -   infeasible: breaks rules: whatever; first
                                                      precedence: x

pipefisher breaks rules: 31 curvature parts before their data, 1 overlap
  and claims fewer iterations than any valid schedule has: device 0 (at least 3)
"""
# Words.


@pytest.mark.parametrize(
    ("text", "unit", "wanted"),
    [
        ("1", ITERATIONS, "1 iteration"),
        ("8", ITERATIONS, "8 iterations"),
        ("1", "us", "1 us"),
    ],
)
def test_units(text, unit, wanted):
    assert with_unit(text, unit) == wanted


def test_broken_rules_in_words():
    breaks = {
        "cov_before_data": 31,
        "inv_before_cov": 1,
        "overlap": 2,
        "something_new": 3,
    }
    assert broken_rules(breaks) == (
        "31 curvature parts before their data, 1 inversion before its curvature, 2 overlaps, "
        "3 something_new"
    )
    assert broken_rules({}) == ""


def test_letters_of_work_are_those_of_no_other_op():
    others = {*PIPELINE, "O", "A", ">", "<"}
    letters = [letter_of(kind) for kind in KFAC]
    assert len(set(letters)) == len(letters)
    assert not {*letters, *(letter.lower() for letter in letters)} & {
        *others,
        *(letter.lower() for letter in others),
    }


# Claims that are impossible.


@pytest.mark.parametrize(
    ("fields", "devices"),
    [
        ({"iterations_of": [2, 2]}, [0]),
        ({"iterations_of": [2, 1]}, [0, 1]),
        ({"iterations_of": [3, 2]}, []),
        ({"status": "feasible", "iterations_of": [3, 1]}, []),
        ({"status": "failed"}, []),
    ],
)
def test_impossible_devices(fields, devices):
    assert (
        impossible_devices(entry(**{"status": "infeasible", **fields}), result())
        == devices
    )
    assert impossible_devices(entry(**fields), result(bound_of=None)) == []


def test_report_says_what_is_impossible_and_why():
    parity = entry(
        status="infeasible",
        reason="breaks rules: whatever; first precedence: x",
        value=2,
        iterations_of=[2, 2],
        breaks={"cov_before_data": 31, "overlap": 1},
        breaks_of=[{"cov_before_data": 31}, {"overlap": 1}],
    )
    causal = entry("pipefisher-causal", value=4, gap=1 / 3, iterations_of=[4, 2])
    tie = TieBreakEntry(name="staleness", value=9000, bound=8500)
    text = drawn(report(result(heuristics=(parity, causal), tie_break=tie)), 100)
    assert text == REPORT


@pytest.mark.parametrize("width", WIDTHS)
def test_reports_fit(width):
    for found in (result(), result(value=None, iterations_of=None, status="UNKNOWN")):
        assert max(map(len, drawn(report(found), width).splitlines())) <= width


def test_lines_count_iterations():
    text = "demo: OPTIMAL 3 iterations, bound 3, gap 0.00 %, 1.5 s"
    assert summary_line(result()).plain == text
    assert (
        "FEASIBLE 1 iteration, bound 1"
        in summary_line(result(status="FEASIBLE", value=1, bound=1)).plain
    )
    assert entry_line(entry(value=1), "ns").plain == "pipefisher: feasible 1 iteration"


def test_what_is_unknown_is_left_out():
    text = drawn(report(result(value=None, iterations_of=None, usage_of=None, bubbles_of=None,
                               peak_saved_of=None, oldest_of=None, gap=None, status="UNKNOWN",
                               bubble_ratio=None, makespan=None)))  # fmt: skip
    assert text.splitlines()[0] == "demo: UNKNOWN"
    assert re.search("0 +3 work", text)


# Progress.


def test_progress_counts_iterations():
    event = Progress("bound", 1.0, "work", incumbent=2, bound=1, gap=0.5)
    assert run_words(ITERATIONS).line(event) == (
        "[    1.00 s] bound: work  best 2 iterations  bound 1 iteration  gap 50.00 %"
    )


def test_events_that_say_nothing_new_are_told_once():
    stream = io.StringIO()
    listener = run_lines(stream, ITERATIONS)
    for seconds, bound in ((1.0, 1), (2.0, 1), (3.0, 2), (4.0, 2), (5.0, 1)):
        listener(Progress("bound", seconds, "cp-sat", bound=bound))
    assert re.findall(r"\[ +(\d)", stream.getvalue()) == ["1", "3", "5"]


# Comparison.


def test_refreshes_beside_pipelines():
    parity = entry(
        status="infeasible", value=2, iterations_of=[2, 2], breaks_of=[{"a": 1}, {"b": 1}],
        breaks={"a": 1, "b": 1},
    )  # fmt: skip
    causal = entry("pipefisher-causal", value=3, gap=0.0, iterations_of=[3, 2])
    plain = Result(
        instance="plain", status="FEASIBLE", objective="makespan", time_unit="us", value=93.5,
        bound=90, gap=0.04, stop_reason="time_limit", wall_seconds=1.0,
        versions=Versions(ppsolve="0", python="3"),
    )  # fmt: skip
    found = [result(heuristics=(parity, causal)), plain]
    for width in WIDTHS[1:]:
        lines = drawn(comparison(found), width).splitlines()
        assert max(map(len, lines)) <= width
    assert re.search(r"demo +OPTIMAL +3 iterations +3 ", "\n".join(lines))
    assert re.search(r"plain +FEASIBLE +93.5 +90 ", "\n".join(lines))


# Charts.


@pytest.mark.parametrize(
    ("name", "kind", "wanted"),
    [
        ("0/call_forward#1@2", "F", 2),
        ("12/call_backward:up_pipe#0@0", "B", 0),
        ("0/cov_kron_A:a.b#2", "CA", None),
        ("0+3/sync_kron_A:m", "SA", None),
        ("F0.0", "F", None),
    ],
)
def test_iterations_of_ops(name, kind, wanted):
    assert iteration_of(op(name, kind, 0, 1)) == wanted


@pytest.fixture(scope="module")
def chimera():
    instance = load_instance(ROOT / "instances/kfac/pinned/bert-4x8-chimera.json")
    return instance, simulate(instance, CAUSAL.name)


def shown(chimera, **frame):
    instance, found = chimera
    kind = kind_of(instance)
    problem = kind.lower(instance, document=found.model_dump(mode="json"))
    schedule = kind.read(instance, problem, found.model_dump(mode="json"))[0]
    return view_of_schedule("demo", instance, schedule, found, **frame)


def test_chart_of_iterations(chimera):
    lines = drawn(shown(chimera), 120).splitlines()
    assert lines[1].split() == ["iteration", "0", "1", "2", "3"]
    rows = {
        line.split("│")[0].strip(): line.split("│")[1:] for line in lines if "│" in line
    }
    assert list(rows) == [f"device {device}" for device in range(4)]
    assert rows["device 1"][0].endswith(" " * 20)  # which has three of four iterations
    assert rows["device 0"][1].strip() == "88%"
    text = "\n".join(lines)
    assert "small letters: the second pipe; a row ends with the last iteration" in text
    assert re.search(
        r"iterations +4\n +iteration +882 ms\n +K-FAC work +done at 3,432 ms", text
    )
    assert re.search(r"\n +1 +3 +90.25 % +258 +11 +5 it.", text)


def test_one_iteration(chimera):
    text = drawn(shown(chimera, window=(882, 1764)), 120)
    assert re.search(r"\niteration 1\n", text)
    assert "│f0  f1 f2  f3" in text


def test_without_the_instance_the_ops_have_their_devices(chimera):
    text = drawn(view_of_document("demo", chimera[1].schedule), 120)
    assert "device 3 │" in text
    assert "iteration" not in text


def test_rows_end_with_their_iterations():
    rows = [Row("device 0", True, [Bar(0, 10, "F", "F", "F0")], end=40.0)]
    lines = drawn(Chart(rows, 80, "us", iterations=[0, 40]), 60).splitlines()
    (row,) = re.fullmatch(r"device 0 │(.*)│ 25%", lines[1]).groups()
    assert re.fullmatch("F0 +·+ +", row)
    assert row.rindex("·") == pytest.approx(len(row) / 2, abs=2)


def test_syncs_are_drawn_beside_their_devices(chimera):
    assert "comm 0 │" in drawn(shown(chimera, links=True), 120)
    assert "collectives are not drawn; --links draws them" in drawn(shown(chimera), 120)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("width", WIDTHS)
def test_charts_fit(chimera, width, encoding):
    text = drawn(shown(chimera), width, encoding=encoding)
    assert max(map(len, text.splitlines())) <= width
    rows = [line for line in text.splitlines() if line.startswith("device ")][:4]
    assert len({len(row) for row in rows}) == 1
    edge = "│" if encoding == "utf-8" else "|"
    if width >= 80:
        shares = [int(re.search(r"(\d+)%", row)[1]) for row in rows]
        assert shares == [round(usage) for usage in chimera[1].usage_of]
        assert all(row.count(edge) == 2 for row in rows)


def test_legend_breaks_between_its_items(chimera):
    lines = drawn(shown(chimera), 80).splitlines()
    words = (
        "C curvature A",
        "D curvature B",
        "X inversion A",
        "Y inversion B",
        "op goes on",
    )
    assert all(any(word in line for line in lines) for word in words)


# The axis.


@given(st.integers(1, 200), st.lists(st.floats(0.01, 1e6), min_size=1, max_size=30))
def test_columns_of_an_axis(width, lengths):
    starts = [sum(lengths[:number]) for number in range(len(lengths))]
    axis = Axis((0.0, sum(lengths)), width, starts)
    places = [axis.column_of(start) for start in starts]
    assert places == sorted(places)
    assert (places[0], axis.column_of(sum(lengths))) == (0, width)
    assert len(axis.numbers(10)) <= width + 10


@pytest.mark.parametrize(
    "field",
    [
        {"iterations_of": [3, 2] * 50},
        {"usage_of": [50.0]},
        {"bounds_by": ["work", "work", "work"]},
        {"oldest_of": []},
    ],
)
def test_lists_by_device_of_other_lengths_are_refused(field):
    # Two devices: no row of a table would be that of a third entry.
    data = result().model_dump(mode="json") | field
    (name,) = field
    text = f"file: {name}: expected one entry for each of 2 devices, got {len(field[name])}"
    with pytest.raises(InputError, match=text):
        validated(RefreshResult, data, "file")
