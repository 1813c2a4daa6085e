"""Figures of memory, gaps and curves, and those of K-FAC work, programs and plans."""

import pytest

import ppsolve
from ppsolve.models.core.result import HeuristicEntry, Result, Versions
from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.curve import Curve
from ppsolve.models.studies.plan.result import Plan, PlanCounts
from ppsolve.solver.views.chart import AmountCurve
from ppsolve.solver.views.drawings import caption_of
from ppsolve.solver.views.plot.pictures import curve, gantt, gaps, memory
from ppsolve.solver.views.plot.schedule import peak_of
from tests.paths import ROOT

pytest.importorskip("matplotlib")
VERSIONS = Versions(ppsolve="0", python="3")


def simulated(name, heuristic):
    instance = ppsolve.load_instance(ROOT / "instances" / f"{name}.json")
    return ppsolve.simulate(instance, heuristic), instance


def legend(figure):
    return [text.get_text() for one in figure.legends for text in one.get_texts()]


def ticks(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def result(**fields):
    entries = [
        HeuristicEntry(name="late", status="feasible", value=15, gap=0.5),
        HeuristicEntry(name="broken", status="infeasible", value=8, gap=-0.2),
        HeuristicEntry(name="early", status="feasible", value=10, gap=0),
        HeuristicEntry(name="other", status="not_applicable"),
    ]
    known = {
        "instance": "two", "status": "FEASIBLE", "objective": "makespan", "time_unit": "us",
        "value": 10, "bound": 9, "gap": 0.1, "stop_reason": "time_limit", "wall_seconds": 1,
        "versions": VERSIONS, "heuristics": tuple(entries),
    }  # fmt: skip
    return Result(**(known | fields))


class TestGaps:
    def test_a_bar_for_each_valid_heuristic_the_best_first(self):
        (axes,) = gaps(result()).axes
        assert ticks(axes) == ["early", "late"]
        assert [bar.get_width() for bar in axes.patches] == [0, 0.5]
        assert [text.get_text() for text in axes.texts] == [
            "makespan 10 us, lower bound 9 us, gap 10.00 %", "0.00 %", "50.00 %",
        ]  # fmt: skip

    def test_the_bound_is_below_the_best_by_its_distance(self):
        figure = gaps(result())
        assert [line.get_xdata()[0] for line in figure.axes[0].lines] == [
            pytest.approx(-0.1)
        ]
        assert legend(figure) == ["proven bound"]
        assert figure.axes[0].get_xlim()[0] < -0.1

    def test_without_any_value_there_is_nothing_to_draw(self):
        with pytest.raises(
            InputError, match="heuristics: no heuristic of it has a gap to draw"
        ):
            gaps(result(heuristics=()))


class TestCurve:
    def points(self, *rows):
        found = [
            {"at": at, "status": "FEASIBLE", "value": value, "bound": bound, "gap": gap}
            for at, value, bound, gap in rows
        ]
        return Curve(
            instance="two", over="capacity", objective="makespan", time_unit="us",
            points=found,
        )  # fmt: skip

    def test_marks_are_filled_where_the_value_is_proved(self):
        (axes,) = curve(
            self.points((1, 12, 10, 0.2), (2, 9, 9, 0), (3, None, 8, None))
        ).axes
        lines = {line.get_label(): line for line in axes.lines}
        assert list(lines["best schedule, proved optimal"].get_xdata()) == [2]
        assert list(lines["best schedule"].get_xdata()) == [1]
        assert list(lines["lower bound"].get_ydata()) == [10, 9, 8]
        assert lines["best schedule"].get_markerfacecolor() == "white"

    def test_the_axis_holds_all_and_names_its_unit(self):
        (axes,) = curve(self.points((1, 12, 10, 0.2), (2, 9, 9, 0))).axes
        low, high = axes.get_ylim()
        assert 0 < low < 9 and 12 < high < 14
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("capacity", "makespan (us)")

    def test_nothing_known(self):
        with pytest.raises(InputError, match="points: no point has a value or a bound"):
            curve(self.points((1, None, None, None)))


class TestMemory:
    def test_a_strip_for_each_pool_with_its_capacity(self):
        found, instance = simulated("uniform/uniform-4x8-1p", "zb-h1")
        (axes,) = memory(found, instance).axes
        assert ticks(axes) == [f"device {number}" for number in range(4)]
        assert len(axes.lines) == 4
        assert "4 of 4" in [text.get_text() for text in axes.texts]

    def test_no_capacity_no_picture(self):
        instance = ppsolve.PipelineInstance(
            num_devices=1, num_microbatches=1, times={"forward": 1, "backward": 2}
        )
        with pytest.raises(InputError, match="memory: there is no memory to draw"):
            memory(ppsolve.simulate(instance, "gpipe"), instance)

    @pytest.mark.parametrize(
        ("most", "cap", "text"),
        [(47.9459, 48, "47.9 of 48"), (7, None, "7"), (8.7e9, 9e9, "8.7G of 9G")],
    )
    def test_peaks_are_short(self, most, cap, text):
        assert peak_of(AmountCurve("device 0", [(0, most)], cap)) == text


class TestKinds:
    def test_a_refresh_has_its_iterations(self):
        found, instance = simulated("kfac/pinned/bert-4x8-1f1b", "pipefisher-causal")
        (axes,) = gantt(found, instance).axes
        assert {"iteration 0", "iteration 1"} <= {
            text.get_text() for text in axes.texts
        }
        assert "Y inversion B" in legend(gantt(found, instance))

    def test_a_program_has_streams_and_what_is_in_flight(self):
        found, instance = simulated("overlap/zero-tail-8l", "original")
        rows, strips = gantt(found, instance).axes
        assert ticks(rows) == ["compute", "comm"]
        assert ticks(strips)[0] == "in flight"

    def test_a_plan_without_a_winner(self):
        fields = dict.fromkeys(PlanCounts.model_fields, 0) | {"not_formed": {}}
        plan = Plan(
            request="r", status="INFEASIBLE", time_unit="us", exhaustive=True, wall_seconds=1,
            counts=fields, versions=VERSIONS,
        )  # fmt: skip
        with pytest.raises(
            InputError, match=r"winner: the plan has no winner \(status INFEASIB"
        ):
            plan.gantt()
        assert "INFEASIBLE" in plan._repr_html_()


def test_a_value_that_is_a_number_of_its_unit_comes_before_it():
    found = result(
        value_unit="iterations", objective="iterations", best_by="x", gap=None
    )
    assert caption_of(found) == "10 iterations, lower bound 9 iterations"
    assert caption_of(result()) == "makespan 10 us, lower bound 9 us, gap 10.00 %"
