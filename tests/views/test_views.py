"""What is drawn: charts, tables, progress lines and numbers."""

import io
import re
from functools import partial

import numpy as np
import pytest
from rich.console import Console

from ppsolve.models.core.result import (
    BoundEntry,
    BrokenRule,
    HeuristicEntry,
    Result,
    ScheduleDocument,
    ScheduledOp,
    Status,
    StopReason,
    Versions,
)
from ppsolve.solver.api.kinds import lower, parse_instance
from ppsolve.solver.run.progress import Progress
from ppsolve.solver.structure.timing import time_orders
from ppsolve.solver.views.chart import (
    Bar,
    Chart,
    Row,
    chart_rows,
    columns,
    has_chunks,
    kinds_of,
)
from ppsolve.solver.views.figures import figure, percent, ratio, seconds, shorten
from ppsolve.solver.views.progress import (
    LiveLine,
    PlainLines,
    is_news_of_run,
    run_words,
)
from ppsolve.solver.views.reports import (
    best_entry,
    comparison,
    entry_line,
    report,
    summary_line,
)
from ppsolve.solver.views.tables import FittingTable, TableColumn
from tests.views.shorthands import describe_problem, view_of_any, view_of_document

WIDTHS = (60, 80, 120, 200)


def drawn(renderable, width=80, *, colour=False, encoding="utf-8"):
    """Return what a terminal of this width gets, without trailing blanks."""
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding, newline="\n")
    console = Console(
        file=stream,
        width=width,
        highlight=False,
        force_terminal=colour,
        color_system="256" if colour else None,
        legacy_windows=False,
        _environ={},
    )
    console.print(renderable)
    stream.flush()
    lines = buffer.getvalue().decode(encoding).split("\n")
    return "\n".join(line.rstrip() for line in lines)


def pipeline(devices=3, microbatches=4, **fields):
    data = {
        "kind": "pipeline",
        "name": "demo",
        "num_devices": devices,
        "num_microbatches": microbatches,
        "times": {"forward": 10, "backward_input": 12, "backward_weight": 9},
        "memory": {"capacity": microbatches, "activation": 1},
        **fields,
    }
    return parse_instance(data)


def all_forwards_first(instance):
    """Return a valid schedule: on every device all F, then I, then W (or B)."""
    problem = lower(instance)
    orders = []
    for resource in problem.span_resources.tolist():
        ops = problem.ops_by_resource[resource]
        stage, kind = problem.stage[ops], problem.kind[ops]
        towards_loss = np.where(kind == 0, stage, -stage)
        orders.append(ops[np.lexsort((problem.microbatch[ops], towards_loss, kind))])
    return time_orders(problem, orders)


def op(name, start, end, **labels):
    return ScheduledOp(id=name, start=start, end=end, **labels)


def bar(start, end, label="F0", kind="F"):
    return Bar(start, end, kind, label[0], label)


def cells(bars, width, first=0.0, last=10.0):
    return [
        (cell.bar.label if cell.bar else ".", cell.width)
        for cell in columns(bars, first, last, width)
    ]


class TestFigures:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (None, "-"),
            (0, "0"),
            (2187537, "2,187,537"),
            (3.0, "3"),
            (0.1, "0.1"),
            (1234.56789, "1,234.57"),
            (1e-9, "0.000000001"),
            (123456789.5, "123,456,790"),
        ],
    )
    def test_figure(self, value, text):
        assert figure(value) == text

    def test_percent_never_hides_a_gap(self):
        assert [percent(x) for x in (None, 0.0, 1e-7, 0.1338, -0.5)] == [
            "-", "0.00 %", "<0.01 %", "13.38 %", "-50.00 %",
        ]  # fmt: skip

    def test_ratio_seconds_shorten(self):
        assert (ratio(0.23474), ratio(None)) == ("0.2347", "-")
        assert [seconds(x) for x in (0.041, 3.14, 125.0)] == [
            "0.04 s",
            "3.1 s",
            "2 min 05 s",
        ]
        assert (shorten("abcdef", 4), shorten("abc", 4)) == ("abc~", "abc")


class TestColumns:
    def test_bars_and_bubbles(self):
        assert cells([bar(0, 4), bar(6, 10, "I0", "I")], 10) == [
            ("F0", 4),
            (".", 2),
            ("I0", 4),
        ]

    def test_widths_always_add_up(self):
        bars = [bar(i * 0.37, i * 0.37 + 0.2, f"F{i}") for i in range(25)]
        for width in (1, 2, 7, 40, 333):
            assert sum(size for _, size in cells(bars, width)) == width

    def test_a_short_op_in_a_bubble_keeps_a_column(self):
        assert cells([bar(5, 5.01, "A")], 10) == [(".", 5), ("A", 1), (".", 4)]

    def test_an_empty_op_shows_nothing(self):
        assert cells([bar(5, 5)], 10) == [(".", 10)]

    def test_a_window_cuts(self):
        assert cells([bar(0, 4), bar(8, 9)], 4, 2.0, 6.0) == [("F0", 2), (".", 2)]

    def test_crowded_columns_keep_proportions(self):
        bars = []
        for index in range(1000):
            bars.append(bar(index, index + 0.5, f"F{index}"))
            bars.append(bar(index + 0.5, index + 0.75, f"W{index}", "W"))
        shown = cells(bars, 100, 0.0, 1000.0)
        count = {
            letter: sum(size for label, size in shown if label[0] == letter)
            for letter in "FW."
        }
        assert count == {
            "F": pytest.approx(50, abs=1),
            "W": pytest.approx(25, abs=1),
            ".": 25,
        }


class TestGantt:
    def chart(self, width, **options):
        schedule = all_forwards_first(pipeline())
        return drawn(view_of_any("demo, test", schedule), width, **options)

    @pytest.mark.parametrize("width", WIDTHS)
    @pytest.mark.parametrize("size", [(3, 4), (32, 24), (1, 1)])
    def test_never_wider_than_the_terminal(self, width, size):
        schedule = all_forwards_first(pipeline(*size))
        text = drawn(view_of_any("demo", schedule, links=True), width)
        assert max(map(len, text.split("\n"))) <= width
        assert f"device {size[0] - 1} │" in text

    def test_rows_letters_bubbles_axis(self):
        lines = self.chart(80).split("\n")
        assert lines[0] == "demo, test"
        assert lines[1].startswith("device 0 │F0  F1  F2  F3 ····")
        assert lines[3].startswith("device 2 │········F0")
        assert re.search(r"│ \d\d%$", lines[1])
        assert lines[4].startswith("         └┬────")
        assert lines[5].split()[0] == "0"
        assert lines[5].endswith(" us")
        assert "F forward" in lines[6]
        assert "· bubble  blank: op goes on" in lines[6]
        assert "1 column = " in lines[7]

    def test_figures_and_devices(self):
        text = self.chart(120)
        assert re.search(r"makespan +168 us", text)
        assert re.search(r"bubble ratio +0\.2619", text)
        assert re.search(r"device 1 +124 +44 +73\.8% +10 +156 +4 of 4", text)

    def test_colours_only_when_asked(self):
        assert "\x1b[" not in self.chart(80)
        assert "48;5;75m" in self.chart(80, colour=True)

    def test_ascii_terminals(self):
        text = self.chart(80, encoding="ascii")
        assert "device 0 |F0" in text
        assert "...." in text

    def test_virtual_stages_get_small_letters(self):
        instance = pipeline(2, 2, placement="vshape", memory=None)
        text = drawn(view_of_any("v", all_forwards_first(instance)), 100)
        assert "F0" in text
        assert "f0" in text
        assert "small letters" in text

    def test_window_and_empty_rows(self):
        rows = [Row("a", True, [bar(0, 4)]), Row("b", True)]
        text = drawn(Chart(rows, 8, "ms", (2, None)), 60)
        assert text.split("\n")[0].startswith("a │F0 ")
        assert "b │······" in text

    def test_links_on_request(self):
        p2p = {"mode": "link", "latency": 1, "bytes": 40, "bandwidth": 10}
        schedule = all_forwards_first(pipeline(2, 2, p2p=p2p, allreduce=7, optimizer=3))
        plain = drawn(view_of_any("x", schedule), 100)
        linked = drawn(view_of_any("x", schedule, links=True), 100)
        assert "link 0->1" not in plain
        assert "link 0->1 │" in linked
        assert "comm 1 │" in linked
        assert "> < transfers" in linked
        assert "A all-reduce" in linked
        note = "collectives are not drawn; --links draws them"
        assert note in plain
        assert note not in linked + self.chart(100)

    def test_an_unknown_kind_is_drawn_all_the_same(self):
        document = ScheduleDocument(
            time_unit="us",
            ops=(op("Z1.0", 0, 5, kind="Z", stage=1, device=0, microbatch=0),),
        )
        assert "device 0 │Z0" in drawn(view_of_document("odd", document), 60)

    def test_graph_ops_show_their_names(self):
        graph = parse_instance(
            {
                "kind": "graph",
                "resources": ["gpu", "a resource with quite a long name"],
                "ops": [
                    {"id": "alpha", "duration": 5, "resources": ["gpu"]},
                    {"id": "beta", "duration": 5,
                     "resources": ["gpu", "a resource with quite a long name"]},
                ],
            }
        )  # fmt: skip
        text = drawn(
            view_of_any("g", time_orders(lower(graph), [np.array([0, 1])])), 80
        )
        assert "gpu │alpha" in text
        assert "a resource with~ │·····" in text


class TestRows:
    def document(self):
        return ScheduleDocument(
            time_unit="us",
            ops=(
                op("F0.0", 0, 5, kind="F", stage=0, device=0, microbatch=0),
                op("TF0.0", 5, 6, kind="P2P", stage=0, device=0, microbatch=0),
                op("F1.0", 6, 9, kind="F", stage=1, device=1, microbatch=0),
                op("AR0", 9, 12, kind="AR", stage=0, device=0),
                op("loose", 0, 1),
            ),
        )

    def test_without_the_instance_rows_follow_labels(self):
        assert [row.name for row in chart_rows(self.document())] == [
            "device 0",
            "device 1",
        ]
        names = [row.name for row in chart_rows(self.document(), links=True)]
        assert names == ["device 0", "device 1", "comm 0"]

    def test_kinds_and_chunks(self):
        rows = chart_rows(self.document(), links=True)
        assert kinds_of(rows) == ["F", "AR", "P2P"]
        assert not has_chunks(rows)

    def test_labels_and_problem_agree(self):
        schedule = all_forwards_first(pipeline())
        document = ScheduleDocument.of(schedule)
        assert chart_rows(document) == chart_rows(document, schedule.problem)


def result(**changes):
    fields = {
        "instance": "demo",
        "status": Status.OPTIMAL,
        "objective": "makespan",
        "time_unit": "us",
        "value": 1000,
        "makespan": 1000,
        "device_span": 990,
        "bound": 1000,
        "bound_by": "chain",
        "gap": 0.0,
        "bubble_ratio": 0.1,
        "best_by": "zb-h1",
        "stop_reason": StopReason.PROVED,
        "wall_seconds": 0.25,
        "versions": Versions(ppsolve="0", python="3"),
        "bounds": (
            BoundEntry(name="load", value=900),
            BoundEntry(name="chain", value=1000),
        ),
        "heuristics": (
            HeuristicEntry(
                name="zbv", status="not_applicable", reason="needs two chunks"
            ),
            HeuristicEntry(name="1f1b", status="feasible", value=1338, gap=0.338),
            HeuristicEntry(
                name="gpipe", status="infeasible", value=1200, reason="memory: full"
            ),
            HeuristicEntry(name="odd", status="failed", reason="deadlock: a -> b -> a"),
            HeuristicEntry(name="zb-h1", status="feasible", value=1000, gap=0.0),
        ),
        **changes,
    }
    return Result(**fields)


class TestTables:
    def test_report(self):
        text = drawn(report(result()), 100)
        assert text.startswith("demo: OPTIMAL\n")
        assert re.search(r"makespan +1,000 us +by zb-h1", text)
        assert re.search(r"lower bound +1,000 us +by chain", text)
        assert "proved after 0.25 s" in text
        order = [text.index(name) for name in ("zb-h1  ", "1f1b", "gpipe", "odd")]
        assert order == sorted(order)
        assert re.search(r"zb-h1 +1,000 +0\.00 % +- +optimal", text)
        assert "infeasible: memory: full" in text
        assert "failed: deadlock: a -> b -> a" in text

    def test_what_is_proved_has_one_distance(self):
        text = drawn(report(result()), 100)
        assert re.search(
            r"\n +over\n +heuristic +makespan +best +bubble +status\n", text
        )
        assert re.search(r"1f1b +1,338 +33\.80 % +- +feasible", text)

    @pytest.mark.parametrize("width", [80, 100])
    def test_what_is_open_has_the_gap_of_each_heuristic_too(self, width):
        # (1338 - 900) / 1338 to the bound, as in the header; (1338 - 1000) / 1000 over the best.
        text = drawn(report(result(status=Status.FEASIBLE, bound=900, gap=0.1)), width)
        assert re.search(
            r"\n +over\n +heuristic +makespan +best +gap +(bubble +)?status\n", text
        )
        assert re.search(r"\n  gap +10\.00 %\n", text)
        assert re.search(r"zb-h1 +1,000 +0\.00 % +10\.00 % +(- +)?best", text)
        assert re.search(r"1f1b +1,338 +33\.80 % +32\.74 % +(- +)?feasible", text)
        assert re.search(r"gpipe +1,200 +- +- +(- +)?infeasible", text)

    def test_a_comparison_counts_what_was_run(self):
        sweep = HeuristicEntry(
            name="list-sweep", status="feasible", value=1000, gap=0.0
        )
        broken = HeuristicEntry(
            name="1f1b", status="infeasible", value=900, reason="memory: full"
        )
        absent = HeuristicEntry(
            name="zbv", status="not_applicable", reason="needs two chunks"
        )
        searched = result(heuristics=(broken, absent, sweep))
        text = drawn(
            comparison([searched, result(heuristics=(broken,)), searched]), 140
        )
        assert re.search(r"list-sweep +2 of 2 +0 +0 +0 +2 ", text)
        assert re.search(r"1f1b +0 of 3 +3 +0 +0 +0 ", text)
        text = drawn(comparison([searched, searched]), 140)
        assert re.search(r"list-sweep +2 of 2 +0 +0 +0 +2 ", text)

    def test_a_comparison_has_the_same_words(self):
        text = drawn(comparison([result(), result()]), 140)
        assert re.search(r"bound +gap +best heuristic +best +time\n", text)
        assert re.search(r"reaches best +over best +over best\n", text)

    def test_the_pattern_of_the_best_of_several_is_named(self):
        fields = {"status": "feasible", "pattern": "fifo"}
        best = HeuristicEntry(name="clusters", value=1000, **fields)
        other = HeuristicEntry(name="ascending", value=1300, **fields)
        text = drawn(report(result(heuristics=(best, other))), 100)
        assert re.search(r"clusters +1,000 .* optimal under fifo", text)
        assert re.search(r"ascending +1,300 .* feasible under fifo", text)
        assert str(entry_line(other, "us")) == "ascending: feasible 1,300 us under fifo"

    def test_not_applicable_is_folded_unless_verbose(self):
        assert "not applicable: zbv (--verbose says why)" in drawn(
            report(result()), 100
        )
        text = drawn(report(result(), verbose=True), 100)
        assert "not applicable: needs two chunks" in text
        assert re.search(r"bound +value \(us\)\n.*\n +load +900\n", text)

    @pytest.mark.parametrize("width", WIDTHS)
    def test_fits(self, width):
        long = "memory: device 0 holds 24 of 8 at 123 us and " + "more " * 30
        entry = HeuristicEntry(name="gpipe", status="infeasible", value=1, reason=long)
        text = drawn(report(result(heuristics=(entry,)), verbose=True), width)
        assert max(map(len, text.split("\n"))) <= width
        assert "1,000 us" in text
        fits = drawn(comparison([result(), result()]), width).split("\n")
        assert max(map(len, fits)) <= width

    def test_reasons_take_few_lines_unless_verbose(self):
        memory = "memory: device 0 holds 7 of 3 at 178308 us (too much from 29718 us to the end)"
        broken = BrokenRule(rule="memory", short="device 0 holds 7 of 3")
        entries = tuple(
            HeuristicEntry(
                name=name, status=status, value=2187537, reason=reason, broken=rule
            )
            for name, status, reason, rule in (
                ("list-backward-first", "infeasible", memory, broken),
                ("odd", "failed", "deadlock: " + "F0.0 -> " * 30, None),
            )
        )
        *lines, note = drawn(report(result(heuristics=entries))).split("\n")[:-1]
        assert note == "  left out: bubble (COLUMNS=88 shows all)"
        row = next(n for n, line in enumerate(lines) if "list-backward-first" in line)
        assert lines[row].endswith("infeasible: device 0 holds 7 of 3")
        assert re.search(r"odd .* failed: deadlock: F0\.0 -> F0\.0", lines[row + 1])
        # The rest goes on below, as far as it is worth three lines.
        assert lines[-1].endswith("~") and len(lines) - row <= 5
        full = drawn(report(result(heuristics=entries), verbose=True), 200)
        assert "of 3 at 178308 us (too much from 29718 us to the end)" in full

    def test_without_a_schedule(self):
        bare = result(
            status=Status.INFEASIBLE, value=None, makespan=None, device_span=None, bound=None,
            gap=None, bubble_ratio=None, best_by=None, stop_reason=StopReason.INFEASIBLE,
            reason="device 0 cannot hold one activation", heuristics=(),
        )  # fmt: skip
        text = drawn(report(bare))
        assert "INFEASIBLE" in text
        assert "device 0 cannot hold one activation" in text
        assert "makespan" not in text
        assert "INFEASIBLE (device 0" in drawn(summary_line(bare))

    def test_device_span_objective(self):
        text = drawn(report(result(objective="device_span", value=990)))
        assert re.search(r"device span +990 us +by", text)
        assert re.search(r"makespan +1,000 us\n", text)

    def test_one_line(self):
        line = drawn(summary_line(result())).strip()
        assert line == "demo: OPTIMAL 1,000 us, bound 1,000, gap 0.00 %, 0.25 s"
        entry = HeuristicEntry(name="x", status="infeasible", value=5, reason="memory")
        assert drawn(entry_line(entry, "us")).strip() == "x: infeasible 5 us (memory)"

    def test_comparison_counts(self):
        other = result(
            instance="b", value=1100, status=Status.FEASIBLE, best_by="cp-sat"
        )
        text = drawn(comparison([result(), other]), 120)
        assert re.search(r"1f1b +2 of 2 +0 +0 +0 +0 +33\.80 % +33\.80 %", text)
        assert re.search(r"gpipe +0 of 2 +2 +0 +0 +0 +- +-", text)
        assert "zbv" not in text
        assert "2 instances: 1 proven optimal, 1 of them reached by a heuristic" in text

    def test_best_entry_ignores_infeasible_ones(self):
        assert best_entry(result()).name == "zb-h1"
        assert best_entry(result(heuristics=())) is None

    def test_columns_without_cells_are_left_out(self):
        columns = (
            TableColumn("name", ["a", "b"], is_text=True),
            TableColumn("gone"),
            TableColumn("n", ["1", "2"]),
        )
        lines = drawn(FittingTable(*columns)).split("\n")
        assert [line.split() for line in (lines[0], *lines[2:4])] == [
            ["name", "n"], ["a", "1"], ["b", "2"],
        ]  # fmt: skip

    def test_describe_problem(self):
        instance = pipeline()
        text = drawn(describe_problem(instance, lower(instance)))
        assert re.search(r"micro-batches +4", text)
        assert re.search(r"work per device +124 us", text)
        assert re.search(r"memory, device 0 to device 2 +capacity 4", text)


def run_lines(stream, unit, *, everything=False, label=""):
    is_news = partial(is_news_of_run, everything=everything)
    return PlainLines(stream, run_words(unit), is_news, label)


class TestProgress:
    EVENT = Progress("incumbent", 1.5, "zb-h1", incumbent=1000, bound=900, gap=0.1)

    def test_plain_line(self):
        assert run_words("us").line(self.EVENT) == (
            "[    1.50 s] incumbent: zb-h1  best 1,000 us  bound 900 us  gap 10.00 %"
        )

    def test_heuristic_events_only_when_verbose(self):
        event = Progress("heuristic", 0.1, "gpipe")
        for everything, lines in ((False, 1), (True, 2)):
            stream = io.StringIO()
            listener = run_lines(stream, "us", everything=everything)
            listener(event)
            listener(self.EVENT)
            assert stream.getvalue().count("\n") == lines

    def test_a_closed_stream_does_not_stop_the_run(self):
        stream = io.StringIO()
        listener = run_lines(stream, "us")
        listener(self.EVENT)
        written = stream.getvalue()
        stream.close()
        listener(self.EVENT)
        assert written.count("\n") == 1

    def test_live_line_shows_the_state(self):
        live = LiveLine("demo", 60.0, run_words("us"))
        live(Progress("phase", 0.0, "cp-sat"))
        live(self.EVENT)
        live(Progress("bound", 2.0, "cp-sat", incumbent=1000, bound=950, gap=0.05))
        text = drawn(live, 120)
        assert "best 1,000 us  bound 950 us  gap 5.00 %  bound: cp-sat  demo" in text
        assert "of 60.0 s" in text

    def test_labels_say_which_instance_runs(self):
        stream = io.StringIO()
        run_lines(stream, "us", label="[2/4] demo  ")(self.EVENT)
        assert stream.getvalue().startswith(
            "[2/4] demo  [    1.50 s] incumbent: zb-h1  best"
        )
        live = LiveLine("[2/4] demo", 60.0, run_words("us"))
        live(Progress("phase", 0.0, "cp-sat"))
        assert re.search(
            r"^\S 0\.\d\d s of 60\.0 s +phase: cp-sat +\[2/4\] demo$",
            drawn(live).strip(),
        )
