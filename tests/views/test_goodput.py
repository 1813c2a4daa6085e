"""Fits and best configurations on the terminal, and their charts."""

import io

import numpy as np
import pytest
from rich.console import Console

from ppsolve.models.studies.goodput.files import GoodputRow
from ppsolve.models.studies.goodput.params import GradParams, PerfParams
from ppsolve.solver.studies.goodput.fit import fit_goodput
from ppsolve.solver.studies.goodput.model import GoodputModel, best_rows
from ppsolve.solver.studies.goodput.search import BatchLimits
from ppsolve.solver.views.goodput import (
    fit_report,
    goodput_chart,
    number,
    rows_table,
)
from ppsolve.solver.views.line_chart import Point

MODEL = GoodputModel(
    PerfParams(0.02, 0.002, 0.1, 0.007, 0.01, 0.001, 2.5), GradParams(0.0002, 0.09), 128
)


def drawn(renderable, width=100):
    stream = io.StringIO()
    Console(file=stream, width=width).print(renderable)
    return stream.getvalue()


class TestGoodput:
    def rows(
        self,
        allocations,
        most=4096,
        low=None,
        high=None,
        accumulation=False,
        compat=False,
    ):
        limits = BatchLimits.of(128, most, (low, high), accumulation, compat)
        rows = best_rows(MODEL, allocations, limits)
        return rows, goodput_chart(MODEL, rows, limits)

    def test_best_rows_are_those_of_the_library(self):
        rows, _ = self.rows([(1, 1), (1, 4), (2, 16)])
        goodput, atomic, accum = MODEL.optimize([1, 1, 2], [1, 4, 16], 4096)
        assert [row.goodput for row in rows] == pytest.approx(goodput, rel=1e-12)
        assert [row.atomic_bsz for row in rows] == atomic.tolist()
        assert [row.accum_steps for row in rows] == accum.tolist()
        for row in rows:
            assert row.goodput == pytest.approx(
                row.throughput * row.efficiency, rel=1e-12
            )
            assert row.batch_size == row.num_replicas * row.atomic_bsz * (
                row.accum_steps + 1
            )
            assert row.throughput == pytest.approx(
                row.batch_size / row.step_time, rel=1e-12
            )

    def test_allocations_that_allow_nothing(self):
        rows, chart = self.rows([(1, 1), (1, 4)], most=256, low=100)
        assert [row.is_allowed for row in rows] == [True, False]
        assert (rows[1].goodput, rows[1].step_time) == (0, None)
        assert "-" in drawn(rows_table(rows)).splitlines()[-1]
        assert [series.name for series in chart.series] == ["1 replica on 1 node"]
        assert self.rows([(1, 4)], most=256, low=100)[1] is None

    @pytest.mark.parametrize("accumulation", [False, True])
    @pytest.mark.parametrize("high", [13, 60, 200])
    def test_lines_stay_within_the_limits_and_below_the_best(self, accumulation, high):
        allocations = [(1, 1), (3, 5), (2, 8)] if accumulation else [(3, 11), (2, 16)]
        rows, chart = self.rows(allocations, 2048, 8, high, accumulation)
        drawn_lines = sorted(chart.series, key=lambda series: series.marked[0].x)
        for row, series in zip(
            sorted(rows, key=lambda row: row.batch_size), drawn_lines, strict=True
        ):
            assert [x for x, _ in series.line] == sorted({x for x, _ in series.line})
            assert all(128 <= x <= 2048 for x, _ in series.line)
            assert series.most == pytest.approx(row.goodput, rel=1e-12)
            assert series.marked == [Point(row.batch_size, row.goodput, row.goodput)]
            assert (row.batch_size, row.goodput) in series.line

    @pytest.mark.parametrize(("replicas", "high"), [(1, 64), (16, 64), (5, 60)])
    def test_a_line_shows_what_the_model_says_of_few_steps(self, replicas, high):
        limits = BatchLimits.of(128, 2048, (1, high), True)
        rows = best_rows(MODEL, [(1, replicas)], limits)
        line = dict(goodput_chart(MODEL, rows, limits).series[0].line)
        assert len(line) > 20
        for batch, found in line.items():
            local = int(batch) // replicas
            steps = [
                s for s in range(1, local + 1) if local % s == 0 and local // s <= high
            ]
            each = [MODEL.evaluate(1, replicas, local // s, s - 1) for s in steps]
            assert any(found == pytest.approx(one, rel=1e-12) for one in each)

    def test_the_line_reaches_the_largest_micro_batch(self):
        rows, chart = self.rows([(3, 5)], most=4096, high=64)
        assert rows[0].atomic_bsz == 64
        assert chart.series[0].line[-1] == (5 * 64, rows[0].goodput)
        assert "best marked" in chart.title

    def test_the_published_choice_may_be_below_its_line(self):
        rows, chart = self.rows([(3, 5)], most=4096, high=64, compat=True)
        assert "published choice marked" in chart.title
        assert rows[0].atomic_bsz < 64
        assert chart.series[0].most > rows[0].goodput

    def test_few_of_many_allocations_are_drawn(self):
        _, chart = self.rows([(nodes, k) for nodes in (1, 2, 4) for k in range(4, 24)])
        assert "(6 of 60)" in chart.title
        assert len(chart.series) == 6
        assert self.rows([(1, 1)], most=128)[1] is None

    def test_tables_of_narrow_terminals(self):
        rows, _ = self.rows([(1, 1)], high=64, accumulation=True)
        assert "time (s)" in drawn(rows_table(rows), 80)
        narrow, note = drawn(rows_table(rows), 50).split("left out: ")
        assert "time (s)" not in narrow
        assert "time (s)" in note

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (0.0, "0"),
            (1e-8, "1.00000e-08"),
            (0.0210973, "0.0210973"),
            (2e7, "2.00000e+07"),
        ],
    )
    def test_parameters_of_any_size(self, value, text):
        assert number(value) == text


class TestFits:
    @pytest.fixture
    def fits(self):
        nodes, replicas, size = (
            grid.ravel() for grid in np.meshgrid([1, 2], [2, 4, 8], [16, 32, 64])
        )
        times = (
            MODEL.perf.accum_time(size),
            MODEL.perf.optim_time(nodes, replicas, size),
        )
        whole = fit_goodput(nodes, replicas, size, *times)
        alone = fit_goodput([1, 1], [1, 1], [16, 16], [0.05, 0.06], [0.05, 0.06])
        return whole, alone

    def test_a_whole_fit(self, fits):
        text = drawn(fit_report("obs.csv: 18 observations", fits[0]))
        assert text.startswith("obs.csv: 18 observations\n  objective ")
        assert "not fitted" not in text
        for name in (
            "alpha_c",
            "beta_n",
            "gamma",
            "accumulation step",
            "optimizer step",
        ):
            assert f"  {name} " in text

    def test_what_the_data_leave_open(self, fits):
        for width in (60, 80, 140):
            text = drawn(fit_report("one", fits[1]), width)
            assert "not fitted: why" in text
            assert "no observation" in text
            assert text.count("warning: ") == len(fits[1].warnings)
            assert "raised" in text
            assert "(worst)" in text


def test_rows_read_back():
    row = GoodputRow(
        num_nodes=1,
        num_replicas=2,
        atomic_bsz=3,
        accum_steps=0,
        batch_size=6,
        goodput=0,
    )
    assert GoodputRow.model_validate_json(row.model_dump_json()) == row
