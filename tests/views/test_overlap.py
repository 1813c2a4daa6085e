"""What is drawn and said of overlap instances: streams, waits, curves, passes that fail."""

import io
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from ppsolve.models.core.result import ScheduleDocument, ScheduledOp, Versions
from ppsolve.models.kinds.overlap.lowering import lower_overlap
from ppsolve.models.kinds.overlap.result import OverlapEntry, OverlapResult
from ppsolve.solver.api import api
from ppsolve.solver.kinds.overlap.report import ProgramReport
from ppsolve.solver.views.chart import AmountCurve, Bar
from ppsolve.solver.views.colours import WAIT_KIND
from ppsolve.solver.views.figures import compact
from ppsolve.solver.views.overlap import (
    collective_kind,
    held,
    program_of,
    stream_rows,
)
from ppsolve.solver.views.reports import (
    comparison,
    entry_line,
    entry_report,
    report,
    summary_line,
)
from ppsolve.solver.views.terminal_chart import blocks
from tests.kinds.overlap.cases import program, programs
from tests.marks import examples
from tests.views.shorthands import describe_problem, view_of_document, view_of_schedule
from tests.views.test_views import drawn

WIDTHS = (40, 60, 80, 120, 200)
FAILURE = "AssertionError in raise_comms: assert len(cur_comms) <= 1"


def node(name, duration=0, *deps, kind="compute", **more):
    return {
        "name": name,
        "kind": kind,
        "duration": duration,
        "deps": list(deps),
        **more,
    }


LAYERS = program(
    node("embed", 50, bytes=4),
    node("gather0", 90, kind="comm", bytes=16, collective="all_gather", group="data"),
    node("w0", 0, "gather0", kind="wait"),
    node("layer0", 120, "embed", "w0", bytes=4),
    node(
        "dispatch1", 60, "layer0", kind="comm", collective="all_to_all", group="expert"
    ),
    node("gather1", 90, kind="comm", bytes=16, collective="all_gather", group="data"),
    node("w1", 0, "gather1", kind="wait"),
    node("d1", 0, "dispatch1", kind="wait"),
    node("layer1", 120, "layer0", "w1", "d1"),
    name="layers",
)


def report_of(instance, order=None):
    places = order or list(range(len(instance.nodes)))
    return ProgramReport(instance, lower_overlap(instance), places)


def view(instance, heuristic="original", **options):
    entry = api.simulate(instance, heuristic)
    schedule = report_of(instance, [instance.index_of[n] for n in entry.order]).schedule
    return view_of_schedule("title", instance, schedule, entry, **options)


def result(**fields):
    found = {
        "instance": "demo", "status": "OPTIMAL", "objective": "makespan", "time_unit": "us",
        "value": 2000, "makespan": 2000, "bound": 2000, "bound_by": "work", "gap": 0.0,
        "best_by": "cp-sat", "stop_reason": "proved", "wall_seconds": 1.5, "order": ["a"],
        "versions": Versions(ppsolve="0", python="3"), "exposed_wait": 500, "max_in_flight": 2,
        "peak_live_bytes": 36.5, "estimate": 2400,
    }  # fmt: skip
    return OverlapResult(**{**found, **fields})


def entry(name, status="feasible", **fields):
    return OverlapEntry(name=name, status=status, **fields)


def test_streams_waits_and_curves_are_drawn():
    lines = drawn(view(LAYERS), 100).splitlines()
    rows = {
        line.split("│")[0].strip(): line.split("│")[1] for line in lines if "│" in line
    }
    assert list(rows) == [
        "compute",
        "comm data",
        "comm expert",
        "in flight",
        "live bytes",
    ]
    # embed 0-50, gather0 50-140, layer0 140-260, both collectives from 260, layer1 350-470
    shares = [
        match.group().strip()
        for match in re.finditer(r"w+|[a-z]+\d? *", rows["compute"])
    ]
    assert [share.rstrip("w") or "w" for share in shares] == [
        "embed",
        "w",
        "layer0",
        "w",
        "layer1",
    ]
    width = len(rows["compute"])
    assert rows["compute"].count("w") == pytest.approx(180 / 470 * width, abs=2)
    assert rows["comm data"].strip("·").startswith("gather0")
    assert "dispatch1" in rows["comm expert"]
    assert "█" in rows["in flight"]
    assert lines[4].endswith("│   2")
    assert lines[5].endswith("│  24")


def test_the_figures_below_the_chart():
    text = drawn(view(LAYERS), 100)
    assert re.search(r"makespan +470 us", text)
    assert re.search(r"exposed +180 us, 38.30 % of the makespan", text)
    assert re.search(r"max in flight +1 per group", text)
    assert re.search(r"peak live bytes +24$", text, re.M)
    assert re.search(r"own estimate +\S+ us \(Inductor's figure, not the time\)", text)
    assert re.search(r"compute +290 +180 +61.7%", text)


def test_the_legend_names_what_is_drawn():
    text = drawn(view(LAYERS), 100)
    for words in (
        "w wait holds the compute stream",
        "G all-gather",
        "X all-to-all",
        "by its first",
    ):
        assert words in text
    assert "reduce-scatter" not in text
    assert "stream is idle" in text


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_terminal(width):
    solved = api.optimize(LAYERS, time_limit=5, workers=1)
    for shown in (
        view(LAYERS),
        report(solved, verbose=True, instance=LAYERS),
        report(solved),
        describe_problem(LAYERS, lower_overlap(LAYERS)),
        comparison([solved, result()]),
    ):
        assert max(map(len, drawn(shown, width).splitlines())) <= width


def test_a_plain_terminal_gets_plain_characters():
    text = drawn(view(LAYERS), 80, encoding="ascii")
    assert text.isascii()
    assert re.search(r"in flight \|4*8+ *", text) or "8" in text


def test_waits_are_dim_and_collectives_coloured():
    text = drawn(view(LAYERS), 80, colour=True)
    assert re.search(r"\x1b\[2mw+\x1b\[0m", text)
    assert re.search(r"\x1b\[38;5;16;48;5;114mgather0", text)


def test_added_ops_are_not_drawn():
    capped = program(
        *(dump for dump in LAYERS.model_dump(mode="json", exclude_none=True)["nodes"]),
        name="capped", max_in_flight=1, max_live_bytes=60,
    )  # fmt: skip
    text = drawn(view(capped), 120)
    assert "launch" not in text
    assert "release" not in text
    assert re.search(r"max in flight +1 of 1 per group", text)
    assert re.search(r"peak live bytes +24 of 60", text)


def test_a_window_narrows_chart_and_curves_alike():
    text = drawn(view(LAYERS, window=(140, 260)), 80)
    compute, data = (
        next(x for x in text.splitlines() if name in x) for name in ("compute", "data")
    )
    assert compute.split("│")[1].strip() == "layer0"
    assert set(data.split("│")[1]) == {"·"}


def test_without_the_instance_kernels_lie_in_the_row_of_their_device():
    document = ScheduleDocument.of(report_of(LAYERS).schedule)
    text = drawn(view_of_document("title", document, links=True), 80)
    rows = [line.split("│")[0].strip() for line in text.splitlines() if "│" in line]
    assert rows == ["device 0", "comm 0"]
    assert re.search(r"makespan +470 us", text)
    assert re.search(r"device 0 +290 +180 +61.7%", text)


@given(programs())
@examples(20)
def test_what_waits_hold_is_what_the_replay_says(instance):
    run = report_of(instance)
    rows = stream_rows(ScheduleDocument.of(run.schedule), instance)
    waits = [bar for bar in rows[0].bars if bar.kind == WAIT_KIND]
    assert sum(bar.end - bar.start for bar in waits) == run.replay.exposed_wait
    assert len(rows) == 1 + len(instance.groups)
    assert sum(len(row.bars) for row in rows[1:]) == len(instance.collective_of)


@given(programs(), st.sampled_from(WIDTHS))
@settings(deadline=None, max_examples=14, suppress_health_check=[HealthCheck.too_slow])
def test_any_program_can_be_drawn(instance, width):
    run = report_of(instance)
    shown = view_of_schedule("title", instance, run.schedule)
    assert max(map(len, drawn(shown, width).splitlines())) <= width


def test_held_time_lies_between_kernels():
    kernels = [Bar(0, 2, "kernel", "A", "a"), Bar(5, 6, "kernel", "B", "b")]
    bars = list(held(kernels, [1, 4, 5, 6, 9]))
    assert [(bar.start, bar.end) for bar in bars] == [(2, 4), (4, 5), (6, 9)]
    assert not list(held([], []))


def test_an_order_that_runs_otherwise_is_not_the_program():
    run = report_of(LAYERS)
    names = [node.name for node in LAYERS.nodes]
    assert program_of(LAYERS, run.schedule, names) is not None
    sooner = ["gather0", "embed", *names[2:]]
    for order in (
        None,
        "names",
        names[:-1],
        [*names[:-1], "?"],
        names[::-1],
        [1],
        sooner,
    ):
        assert program_of(LAYERS, run.schedule, order) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("all_gather_into_tensor", "all-gather"),
        ("_c10d_functional.reduce_scatter", "reduce-scatter"),
        ("ncclDevKernel_AllReduce_Sum", "all-reduce"),
        ("all_to_all_single", "all-to-all"),
        ("broadcast", "collective"),
    ],
)
def test_types_of_collectives(text, kind):
    assert collective_kind(text) == kind


def test_letters_of_bars_by_room():
    bar = Bar(0, 1, "kernel", "W", "weight_grad12", short="W12")
    assert [bar.text(width) for width in (1, 2, 3, 12, 13)] == [
        "W",
        "W",
        "W12",
        "W12",
        bar.label,
    ]


def test_curves_show_the_largest_amount_of_a_column():
    curve = AmountCurve("bytes", [(0, 2), (3, 8), (3.5, 1), (10, 0)])
    assert curve.most == 8
    assert curve.columns((0, 10), 5) == [2, 8, 1, 1, 1]
    assert curve.columns((5, 10), 2) == [1, 1]
    assert blocks(curve, (0, 10), 5, plain=True) == "28111"
    assert blocks(curve, (0, 10), 5, plain=False) == "▂█▁▁▁"
    assert blocks(AmountCurve("none", []), (0, 10), 3, plain=False) == "   "
    assert curve.columns((4, 4), 2) == [0, 0]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=12),
    st.integers(1, 60),
)
def test_no_peak_of_a_curve_is_lost(points, width):
    curve = AmountCurve("x", sorted(dict(points).items()))
    columns = curve.columns((0, 51), width)
    assert len(columns) == width
    assert max(columns) == curve.most


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (7, "7"), (3.25, "3.2"), (112, "112"), (9999, "9999"), (12345, "12k"),
        (999_700, "1.0M"), (1.3e6, "1.3M"), (2**31, "2.1G"), (4e12, "4T"),
        (1e29, "1e29"),
    ],
)  # fmt: skip
def test_compact_amounts(value, text):
    assert compact(value) == text


@given(st.floats(0, 1e17))
def test_compact_amounts_fit_beside_a_chart(value):
    assert len(compact(value)) <= 4


def test_the_report_of_a_result():
    chain = tuple(f"n{number}" for number in range(8))
    found = result(
        heuristics=(
            entry("original", value=2400, makespan=2400, gap=0.2, exposed_wait=900, estimate=1900),
            entry("raise-comms", "failed", reason=FAILURE),
            entry("inductor-default", "failed", reason=f"{FAILURE} (completed: sink_waits)"),
            entry("sink-waits", "infeasible", value=1900, makespan=1900,
                  reason="memory: live bytes holds 108 of 40 at 9 us (too much from 9 us on)",
                  broken={"rule": "memory", "short": "live bytes holds 108 of 40"}),
            entry("raise-comms-stable", "failed", reason=FAILURE),
        ),
        exposed=[{"name": f"c{n}", "waited": 1234, "because": chain} for n in range(7)],
    )  # fmt: skip
    text = drawn(report(found), 120)
    for words in (
        r"makespan +2,000 us  by cp-sat", r"lower bound +2,000 us  by work", r"gap +0.00 %",
        r"exposed +500 us, 25.00 % of the makespan", r"max in flight +2$",
        r"peak live bytes +36.5$", r"original +2,400 +20.00 % +900 +1,900 +feasible",
        r"raise-comms +- +- +- +- +failed: raise_comms: several collectives left to~?",
        r"infeasible: live bytes holds 108 of 40$",
        r"c4 +1,234 us +\.\.\. > n4 > n5 > n6 > n7$", r"and 2 more \(--verbose lists them\)",
    ):  # fmt: skip
        assert re.search(words, text, re.M), words
    assert "c5" not in text


def test_a_verbose_report_leaves_nothing_out():
    chain = tuple(f"n{number}" for number in range(8))
    found = result(
        heuristics=(
            entry("original", value=2400, makespan=2400, gap=0.2, estimate=1900),
            entry("raise-comms", "failed", reason=f"{FAILURE} (completed: sink_waits)"),
            entry(
                "raise-comms-stable",
                "failed",
                reason=f"{FAILURE} (completed: sink_waits)",
            ),
            entry("1f1b", "not_applicable", reason="needs a pipeline"),
        ),
        exposed=[{"name": f"c{n}", "waited": 1, "because": chain} for n in range(7)],
    )
    text = drawn(report(found, verbose=True), 160)
    assert "older" in text
    words = " ".join(text.split())
    assert "(completed: sink_waits)" in words and "raise-comms-stable" in words
    assert "not applicable: needs a pipeline" in words
    assert re.search(r"c6 +1 us +n0 > n1 > n2 > n3 > n4 > n5 > n6 > n7", text)


def test_the_least_peak_is_proved_or_bounded():
    capped = program(node("a", 1, bytes=1), max_live_bytes=40)
    proved = drawn(report(result(least_peak_bytes=36.5), instance=capped), 100)
    assert "36.5 of 40 (proven least at this makespan)" in proved
    assert "36.5 (at least 30 at this makespan)" in drawn(
        report(result(least_peak_bytes=30)), 100
    )


def test_caps_per_group_are_named():
    nodes = LAYERS.model_dump(mode="json", exclude_none=True)["nodes"]
    capped = program(*nodes, max_in_flight={"data": 1})
    text = drawn(view(capped), 100)
    assert "1 per group (data: 1, expert: no limit)" in text
    assert re.search(
        r"max in flight +data: 1$", drawn(describe_problem(capped, None), 80), re.M
    )


def test_an_instance_is_described():
    text = drawn(describe_problem(LAYERS, lower_overlap(LAYERS)), 100)
    for words in (
        r"nodes +9: 3 kernels, 3 collectives, 3 waits", r"collectives +2 all-gather, 1 all-to-all",
        r"process groups +data \(2 collectives\), expert \(1 collective\)",
        r"collective order +frozen", r"max in flight +no limit", r"max live bytes +no limit",
        r"compute +290 us", r"communication +240 us",
        r"comm / compute +0.83",
    ):  # fmt: skip
        assert re.search(words, text), words


def test_one_line_for_quiet():
    line = summary_line(result()).plain
    assert line.startswith(
        "demo: OPTIMAL 2,000 us, bound 2,000, gap 0.00 %, exposed 500 us, 25.00 %"
    )
    failed = entry_line(entry("raise-comms", "failed", reason=FAILURE), "us").plain
    assert failed.startswith(
        "raise-comms: failed (raise_comms: several collectives left"
    )


def test_the_report_of_a_pass():
    text = drawn(entry_report(LAYERS, api.simulate(LAYERS, "original")), 100)
    assert re.search(r"makespan +470 us", text)
    assert re.search(
        r"older estimate +none: two collectives run at the same time", text
    )
    text = drawn(
        entry_report(LAYERS, entry("raise-comms", "failed", reason=FAILURE)), 100
    )
    assert re.search(
        r"reason +raise_comms: several collectives left to come first", text
    )
    assert "makespan" not in text


def test_comparison_tells_programs_units_and_failures():
    failing = entry("raise-comms", "failed", reason=FAILURE)
    original = entry("original", value=2400, makespan=2400, gap=0.2, exposed_wait=900)
    same = entry("raise-comms-stable", "failed", reason=FAILURE)
    first = result(heuristics=(original, failing, same))
    second = result(
        instance="other", time_unit="ms", heuristics=(original, failing, same)
    )
    text = drawn(comparison([first, second]), 140)
    assert re.search(r"demo +OPTIMAL +2,000 us +2,000 ", text)
    assert re.search(r"other +OPTIMAL +2,000 ms +2,000 ", text)
    assert re.search(r"raise-comms +0 of 2 +0 +2 +0 +0 +- +-", text)
    assert "2,000 us" not in drawn(comparison([first, first]), 140)


def test_a_thousand_nodes_are_drawn():
    nodes = [node("start", 5)]
    for number in range(250):
        before = f"k{number - 1}" if number else "start"
        nodes += [
            node(f"gather{number}", 7, kind="comm"),
            node(f"v{number}", 0, f"gather{number}", kind="wait"),
            node(f"k{number}", 5, before, f"v{number}"),
            node(f"m{number}", 1, f"k{number}"),
        ]
    shown = view(program(*nodes))
    buffer = io.StringIO()
    Console(file=buffer, width=120, color_system=None).print(shown)
    assert "stream is idle" in buffer.getvalue()
    compute = next(line for line in buffer.getvalue().splitlines() if "compute" in line)
    letters = compute.split("│")[1]
    assert {"K", "w"} <= set(letters)
    # 6 of 12 time units are kernels, 1 of them m; where ops are short kinds take turns
    assert 0.3 < letters.count("w") / len(letters) < 0.7


def test_collectives_of_pipelines_have_rows_and_letters():
    ops = (
        ScheduledOp(id="AG0", kind="AG", stage=0, device=0, start=0, end=10),
        ScheduledOp(
            id="F0.0", kind="F", stage=0, device=0, microbatch=0, start=10, end=30
        ),
        ScheduledOp(
            id="ARF0.0", kind="ARF", stage=0, device=0, microbatch=0, start=30, end=40
        ),
        ScheduledOp(
            id="B0.0", kind="B", stage=0, device=0, microbatch=0, start=40, end=80
        ),
        ScheduledOp(
            id="ARB0.0", kind="ARB", stage=0, device=0, microbatch=0, start=80, end=90
        ),
        ScheduledOp(id="RS0", kind="RS", stage=0, device=0, start=90, end=100),
    )
    document = ScheduleDocument(time_unit="us", ops=ops)
    text = drawn(view_of_document("title", document, links=True), 80)
    assert re.search(r"comm 0 │G0 +·+A0 +·+A0 +S0", text)
    assert text.count("A all-reduce") == 1
    assert "G all-gather" in text
    assert "S reduce-scatter" in text
    assert re.search(r"device 0 +60 +40 +60.0%", text)
    alone = drawn(view_of_document("title", document), 80)
    assert "comm 0" not in alone
    assert "collectives are not drawn; --links draws them" in alone
