"""Plans and charts on the terminal; bars and lines of progress."""

import io
import re
import sys
from functools import partial
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, Group

from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.plan.request import RankOrder, parse_request
from ppsolve.models.studies.plan.result import Range, Rule
from ppsolve.solver.studies.plan.api import plan
from ppsolve.solver.studies.plan.progress import PlanProgress
from ppsolve.solver.views.line_chart import (
    LineChart,
    Point,
    Series,
    chart_bytes,
    chart_figure,
    chart_format,
)
from ppsolve.solver.views.plan import in_words, plan_chart, plan_report, run_lengths
from ppsolve.solver.views.progress import (
    PLAN_WORDS,
    LiveLine,
    PlainLines,
    is_news_of_plan,
    plan_progress,
)
from ppsolve.solver.views.terminal_chart import round_step

BLOCK = {
    "name": "block",
    "count": 8,
    "forward": [10, 16],
    "backward_input": [11, 17],
    "backward_weight": [9, 15],
    "activation_bytes": {"per_sample": 10},
    "output_bytes": {"per_sample": 1},
    "parameter_bytes": 10,
}
REQUEST = {
    "kind": "plan",
    "name": "tiny",
    "model": {"microbatch_sizes": [1, 2], "layers": [BLOCK]},
    "cluster": {
        "nodes": 2,
        "devices_per_node": 2,
        "memory": 600,
        "within_node": {"latency": 1, "bandwidth": 100},
        "between_nodes": {"latency": 5, "bandwidth": 10},
    },
    "goodput": {"init_batch_size": 8, "grad": {"sqr": 0.1, "var": 1}},
    "search": {"batch_sizes": [8, 16], "placements": ["linear", "vshape"]},
}


def drawn(renderable, width=100, encoding=None):
    class _Console(Console):
        @property
        def encoding(self):
            return encoding or "utf-8"

    console = _Console(width=width, color_system=None, markup=False, highlight=False)
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


@pytest.fixture(scope="module")
def found():
    return plan(parse_request(REQUEST))


class TestPlans:
    def test_the_winner_in_words(self, found):
        configuration = found.winner.configuration.model_copy(
            update={
                "pipeline_depth": 2, "replicas": 2, "placement": "vshape", "virtual_stages": 2,
                "microbatches": 4, "microbatch_size": 2, "batch_size": 16, "backward": "split",
                "rank_order": RankOrder.STAGES_FIRST,
            }
        )  # fmt: skip
        assert in_words(configuration) == (
            "pipeline of 2 devices x 2 replicas, 2 vshape stages per device, micro-batch 2, "
            "4 micro-batches, batch 16, stages first, split backward"
        )
        alone = configuration.model_copy(
            update={
                "pipeline_depth": 1, "replicas": 1, "placement": "linear", "virtual_stages": 1,
                "microbatches": 1, "microbatch_size": 8, "batch_size": 8, "backward": "fused",
            }
        )  # fmt: skip
        assert (
            in_words(alone)
            == "one device, micro-batch 8, 1 micro-batch, batch 8, fused backward"
        )
        line = alone.model_copy(update={"pipeline_depth": 2})
        assert in_words(line).startswith(
            "pipeline of 2 devices, one stage per device, micro-b"
        )

    def test_layers_of_decoders_are_said_without_their_ends(self):
        """8 layers of which 2 are the ends."""
        ends = {"forward": 10, "backward": 20, "parameter_bytes": 10}
        block = {"name": "block", "count": 6, "forward": 10, "backward": 20}
        layers = [{"name": "embedding"} | ends, block, {"name": "head"} | ends]
        request = {
            "kind": "plan",
            "model": {"microbatch_sizes": [1], "layers": layers},
            "cluster": {"devices_per_node": 2, "within_node": {"latency": 1}},
            "search": {"batch_sizes": [8], "pipeline_depths": [2]},
        }
        text = drawn(plan_report(plan(parse_request(request))), width=200)
        assert (
            "3 3 decoder layers on 2 stages, with the embedding on the first and "
            in text
        )

    @pytest.mark.parametrize(
        ("layers", "text"),
        [
            ((13, 12, 12, 13), "13 12 12 13"),
            ((3, 3, 3, 3), "3 (4 times)"),
            ((4, 3, 3, 3, 4), "4 3 (3 times) 4"),
            ((), ""),
        ],
    )
    def test_run_lengths(self, layers, text):
        assert run_lengths(layers) == text

    def test_everything_is_said(self, found):
        text = drawn(plan_report(found))
        counts, winner = found.counts, found.winner
        assert text.startswith("tiny: OPTIMAL\n")
        assert "gap 0.00 %; proved: no other of the request has more" in text
        assert f"{counts.enumerated} configurations: " in text
        assert f"by {winner.schedule_by}, checked" in text
        assert f"{counts.pruned_by_memory} do not fit the memory" in text
        assert "ruled out by bounds" in text
        assert "vshape needs at least 2 devices (1)" in text
        assert "us (" in text

    def test_counts_of_rows_add_up(self, found):
        text = drawn(plan_report(found, top=3), width=200)
        more = [int(line.split()[0]) for line in text.splitlines() if " more: " in line]
        assert sum(more) + 3 + found.counts.pruned_by_memory == found.counts.enumerated

    @pytest.mark.parametrize("width", [72, 80, 100, 140])
    def test_nothing_is_wider_than_the_terminal(self, found, width):
        for verbose in (False, True):
            text = drawn(plan_report(found, verbose=verbose), width)
            assert max(map(len, text.splitlines())) <= width
            assert "…" not in text
        assert "  rank " in drawn(plan_report(found), 100)

    def test_what_all_rows_share_is_said_once(self, found):
        text = drawn(plan_report(found), width=200)
        assert "in all these rows: split backward, searched layer split" in text
        assert "layer\n" not in text

    def test_reasons_of_every_row(self, found):
        text = drawn(plan_report(found, verbose=True), width=400)
        for row in found.table:
            assert row.reason in text

    def test_refusals_say_the_device_the_amounts_and_what_helps(self):
        search = {"placements": ["linear"], "schedules": ["gpipe"], "batch_sizes": [8]}
        cluster = REQUEST["cluster"] | {"memory": 470}
        found = plan(parse_request(REQUEST | {"cluster": cluster, "search": search}))
        words = [
            " ".join(drawn(plan_report(found), width).split()) for width in (80, 120)
        ]
        for text in words:
            assert "proved not to fit the memory" in text
            assert "with schedules beyond the memory" in text
            assert "not applicable" not in text
            assert (
                "with 1 device, micro-batch 1: device 0 needs 720 bytes or more, available 470 "
                "bytes; may help: a pipeline of 2 devices, tensor parallelism 2" in text
            )
            assert (
                "with 2 devices, micro-batch 1, gpipe: device 0 needs 480 bytes, available 470 "
                "bytes; may help: a schedule with fewer micro-batches in flight" in text
            )
        for row in found.table:
            if row.memory is not None:
                assert str(row.memory) in row.reason

    def test_of_many_refusals_the_nearest_are_shown(self, found):
        lacking = next(row for row in found.table if row.lost_by is Rule.MEMORY)
        rows = tuple(
            lacking.model_copy(
                update={
                    "configuration": lacking.configuration.model_copy(
                        update={"microbatch_size": size}
                    ),
                    "memory": lacking.memory.model_copy(update={"needed": 600 + size}),
                }
            )
            for size in (9, 8, 7, 6, 5, 4, 3)
        )
        many = found.model_copy(update={"table": (found.winner, *rows)})
        text = drawn(plan_report(many))
        assert "7 do not fit the memory:" in text
        assert text.index("micro-batch 3: device 0 needs 603 bytes") < text.index(
            "micro-batch 4: "
        )
        assert "micro-batch 7:" not in text
        assert "3 more, which lack more" in text
        everything = drawn(plan_report(many, verbose=True, top=1))
        assert "micro-batch 9: device 0" in everything
        assert "which lack more" not in everything

    @pytest.mark.slow
    def test_columns_of_variants_are_there_where_they_vary(self, found):
        model = REQUEST["model"]
        shared = [model | {"tensor_parallel": 2}, model | {"recompute": "full"}]
        both = plan(parse_request(REQUEST | {"variants": shared}))
        text = drawn(plan_report(both, top=100), width=200)
        assert re.search(r"batches +TP +pute +batch", text)
        only = [row for row in both.table if row.configuration.tensor_parallel == 2]
        text = drawn(
            plan_report(both.model_copy(update={"table": tuple(only)})), width=200
        )
        assert "in all these rows: tensor parallelism (TP) 2, " in text
        assert "TP  " not in text
        for words in ("TP", "recom"):
            assert words not in drawn(plan_report(found), width=200).split("not fit")[0]
        assert "tensor parallelism 2, micro-batch" in in_words(only[0].configuration)

    def test_schedules_that_are_not_allowed(self, found):
        winner = found.winner.model_copy(
            update={
                "goodput": Range(low=found.goodput.low, high=2 * found.goodput.high)
            }
        )
        text = drawn(
            plan_report(found.model_copy(update={"winner": winner})), width=200
        )
        assert "with any schedule at most" in text

    def test_an_open_plan(self, found):
        low = found.goodput.low
        some = found.model_copy(
            update={
                "status": Status.FEASIBLE,
                "goodput": Range(low=low, high=1.5 * low),
                "gap": 1 / 3,
            }
        )
        text = drawn(plan_report(some), width=200)
        assert "gap 33.33 %\n" in text
        assert found.winner.reason in text


class TestPlanCharts:
    def test_over_batch_sizes(self, found):
        chart = plan_chart(found)
        assert chart.x_name == "batch size"
        assert chart.xs == [8, 16]
        rows = [row for row in found.table if row.goodput]
        assert max(s.most for s in chart.series) == max(
            row.goodput.high for row in rows
        )
        reached = [p.low for s in chart.series for p in s.marked if p.low is not None]
        assert max(reached) == found.goodput.low

    def test_over_depths_with_one_batch_size(self, found):
        rows = tuple(row for row in found.table if row.configuration.batch_size == 16)
        chart = plan_chart(found.model_copy(update={"table": rows}))
        assert chart.x_name == "devices of a pipeline"
        assert len(chart.series) == 1

    def test_nothing_to_draw(self, found):
        lacking = tuple(row for row in found.table if row.lost_by is Rule.MEMORY)
        assert plan_chart(found.model_copy(update={"table": lacking})) is None
        assert plan_chart(found.model_copy(update={"table": found.table[:1]})) is None

    def test_lines_only_where_all_is_known(self, found):
        def known(row):
            low = row.goodput.high
            return row.model_copy(update={"goodput": Range(low=low, high=low)})

        table = tuple(known(row) for row in found.table if row.goodput)
        chart = plan_chart(found.model_copy(update={"table": table}))
        assert not chart.has_limits
        assert all(len(series.line) == 2 for series in chart.series)
        assert " to " not in drawn(chart)
        assert all(
            series.line == []
            for series in plan_chart(found).series
            if series.marked[0].low is None
        )


def chart_of(*series):
    return LineChart("goodput", "batch size", series)


class TestLineCharts:
    MIXED = chart_of(
        Series("a on 1", [(1, 10), (4, 30)], [Point(1, 10, 10), Point(4, 30, 20)]),
        Series("b", [], [Point(2, 25)]),
    )

    def test_a_row_for_each_place_and_a_column_for_each_series(self):
        lines = [line.split("  ") for line in drawn(self.MIXED).splitlines()]
        cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
        assert cells[0] == ["goodput"]
        assert cells[1:3] == [["a"], ["batch size", "on 1", "b"]]
        assert cells[4:7] == [
            ["1", "10", "-"],
            ["2", "-", "at most 25"],
            ["4", "20 to 30", "-"],
        ]

    def test_one_line_says_what_the_figures_mean(self):
        best, choice = "x: proved best", "*: the choice"
        reached = "x to y: x is reached, y cannot be exceeded"
        proved = "at most y: no schedule made"
        assert drawn(self.MIXED, 110).splitlines()[-1] == f"{reached}; {proved}; {best}"
        assert chart_of(Series("b", [], [Point(2, 25)])).legend == proved
        assert (
            chart_of(Series("a", [(1, 2), (4, 3)], [Point(4, 3, 3)])).legend == choice
        )
        assert chart_of(Series("a", [(1, 2)], [Point(1, 2, 2)])).legend == ""

    def test_the_choice_among_many_is_marked_and_nearest_figures_say_where_they_are(
        self,
    ):
        line = [(float(x), 2.0 * x) for x in range(3, 40)]
        text = drawn(chart_of(Series("a", line, [Point(10, 20, 20)])))
        rows = [row.split() for row in text.splitlines()[3:-1]]
        assert rows == [
            ["4", "8"], ["8", "16"], ["10", "20", "*"], ["16", "32"], ["32", "64"],
        ]  # fmt: skip
        few = chart_of(Series("a", [(3, 5.5), (64, 7)], []), Series("b", [(4, 1)], []))
        rows = [row.split() for row in drawn(few).splitlines()[3:]]
        assert rows == [
            ["3", "5.5", "1", "(4)"],
            ["4", "5.5", "(3)", "1"],
            ["64", "7", "-"],
        ]

    @given(
        st.lists(
            st.tuples(
                st.integers(1, 10**6), st.floats(0, 1e9), st.none() | st.floats(0, 1)
            ),
            min_size=1,
            max_size=12,
            unique_by=lambda point: point[0],
        ),
        st.integers(60, 130),
    )
    def test_any_figures_fit(self, points, width):
        marked = [
            Point(x, y, None if share is None else share * y)
            for x, y, share in sorted(points)
        ]
        chart = chart_of(
            *(Series(name, [(p.x, p.high) for p in marked], marked) for name in "ab")
        )
        lines = drawn(chart, width).splitlines()
        assert max(map(len, lines)) <= width
        notes = ("left out: b (", chart.legend[:8] or "no legend")
        rows = list(takewhile(lambda line: not line.startswith(notes), lines))
        assert len(rows) == 3 + len(marked)
        assert ("left out" in "".join(lines)) == ("b" not in lines[1].split())

    @given(st.floats(1e-9, 1e15), st.integers(2, 10))
    def test_round_steps(self, most, wanted):
        step = round_step(most, wanted)
        assert step * wanted >= most * (1 - 1e-8)
        assert f"{step:.6e}"[0] in "125"

    def test_ticks(self):
        many = [(x, 1.0) for x in range(128, 5000, 30)]
        assert chart_of(Series("a", many, [])).x_ticks() == [
            128,
            256,
            512,
            1024,
            2048,
            4096,
        ]
        assert chart_of(Series("a", [(5, 1), (6, 1)], [])).x_ticks() == [5, 6]
        narrow = [(x, 1.0) for x in range(33, 60)]
        assert chart_of(Series("a", narrow, [])).x_ticks() == [33, 59]


class TestFiles:
    CHART = TestLineCharts.MIXED

    @pytest.mark.parametrize("kind", ["png", "svg"])
    def test_equal_charts_give_equal_bytes(self, kind):
        assert chart_bytes(self.CHART, kind) == chart_bytes(self.CHART, kind)

    def test_the_figure_holds_every_number(self):
        (axes,) = chart_figure(self.CHART).axes
        assert (axes.get_title(), axes.get_xlabel()) == ("goodput", "batch size")
        assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2", "4"]
        assert axes.get_ylim() == (0, 1.05 * 30)
        drawn = [list(map(float, line.get_ydata())) for line in axes.lines]
        # Of each series the line, its ranges, what is proved, what is reached, the legend.
        assert drawn[:5] == [[10, 30], [20, 30], [30], [10, 20], []]
        assert drawn[5:10] == [[], [25, 25], [25], [], []]
        legend = [text.get_text() for text in axes.get_legend().get_texts()]
        assert legend == ["a on 1", "b", "reached by a schedule", "proved: at most"]

    def test_figures_of_nothing_but_zero(self):
        (axes,) = chart_figure(chart_of(Series("zero", [(1, 0), (2, 0)], []))).axes
        assert axes.get_ylim() == (0, 1)

    def test_the_state_of_matplotlib_is_left_alone(self):
        import matplotlib

        before = matplotlib.rcParams.copy()
        chart_bytes(self.CHART, "svg")
        assert matplotlib.rcParams.copy() == before

    def test_formats(self):
        assert [chart_format(name) for name in ("a.png", "b/c.SVG")] == ["png", "svg"]
        with pytest.raises(
            InputError, match=r"a.pdf: --chart: expected a file name ending in"
        ):
            chart_format("a.pdf")

    def test_matplotlib_is_missing(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(InputError, match=r"pip install 'ppsolve\[plot\]'"):
            chart_format("a.png")


def plan_lines(stream, *, everything=False):
    return PlainLines(
        stream, PLAN_WORDS, partial(is_news_of_plan, everything=everything)
    )


class TestProgress:
    def event(self, seconds=0.0, phase="heuristics", best=None, bound=4.0, examined=3):
        return PlanProgress(seconds, phase, examined, 1200, best, bound)

    def test_plain_lines(self):
        assert PLAN_WORDS.line(self.event(1.25)) == (
            "[    1.25 s] heuristics  3/1,200  at most 4"
        )
        assert PLAN_WORDS.line(self.event(best=5.0)).endswith(
            "best 5 samples/s  at most 5  gap 0.00 %"
        )

    def test_lines_come_at_changes_but_not_more_often_than_once_a_second(self):
        stream = io.StringIO()
        write = plan_lines(stream)
        for step in range(500):
            write(
                self.event(
                    step / 50, ("heuristics", "splits")[step % 2], best=float(step)
                )
            )
        assert 9 <= len(stream.getvalue().splitlines()) <= 11

    def test_lines_without_changes_are_rare(self):
        stream = io.StringIO()
        write = plan_lines(stream)
        for step in range(50):
            write(self.event(float(step)))
        assert len(stream.getvalue().splitlines()) == 5

    def test_everything_has_each_improvement(self):
        stream = io.StringIO()
        write = plan_lines(stream, everything=True)
        for step in range(5):
            write(self.event(step / 100, best=float(step)))
        assert len(stream.getvalue().splitlines()) == 5

    def test_a_closed_stream_is_nobodys_problem(self):
        stream = io.StringIO()
        stream.close()
        write = plan_lines(stream)
        write(self.event())
        assert stream.closed

    @pytest.mark.parametrize("width", [40, 80, 140])
    def test_the_live_line(self, width):
        live = LiveLine("tiny", 45.0, PLAN_WORDS)
        assert "starting  tiny" in drawn(live, 140)
        live(self.event(best=2.0, examined=600))
        text = drawn(Group(live), width)
        assert len(text) <= width
        assert "\n" not in text
        if width == 140:
            assert (
                "600/1,200  best 2 samples/s  at most 4  gap 50.00 %  heuristics  tiny"
                in text
            )
        live(self.event(best=0.0, bound=0.0))
        assert "gap" not in drawn(Group(live), 140)

    def test_which_one(self, monkeypatch, capsys):
        with plan_progress("tiny", time_limit=1, quiet=True) as listener:
            assert listener is None
        with plan_progress("tiny", time_limit=1) as listener:
            listener(self.event())
        assert capsys.readouterr().err == f"{PLAN_WORDS.line(self.event())}\n"
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        with plan_progress("tiny", time_limit=1) as listener:
            assert isinstance(listener, LiveLine)
            listener(self.event())
