"""Figures of schedules: what is painted where, and what is written into it."""

import pytest

import ppsolve
from ppsolve.models.core.result import ScheduleDocument, ScheduledOp
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.views.chart import Bar, Chart, Row
from ppsolve.solver.views.colours import BLUE, darker, ink_on, lightened, look_of
from ppsolve.solver.views.drawings import ANY, Drawn
from ppsolve.solver.views.line_chart import figure_bytes
from ppsolve.solver.views.plot.pictures import gantt
from ppsolve.solver.views.plot.schedule import (
    LAYOUT,
    Piece,
    frame_chart,
    name_of,
    pieces_of,
    schedule_figure,
)
from ppsolve.solver.views.plot.sheet import sheet_of
from ppsolve.solver.views.schedule_view import ScheduleView, ViewOptions
from tests.marks import first

pytest.importorskip("matplotlib")


def bars(*times, kind="F"):
    return [
        Bar(a, b, kind, kind, f"{kind}{place}") for place, (a, b) in enumerate(times)
    ]


@pytest.fixture(scope="module")
def result():
    instance = ppsolve.parse_instance(
        {
            "kind": "pipeline",
            "name": "two",
            "num_devices": 2,
            "num_microbatches": 3,
            "times": {"forward": 1, "backward": 2},
            "memory": {"capacity": 2, "activation": 1},
        }
    )
    return ppsolve.optimize(instance, workers=1)


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


class TestPieces:
    def test_ops_are_cut_to_the_window(self):
        found = pieces_of(bars((0, 4), (4, 6), (9, 12)), (1, 10), 90)
        assert [(piece.start, piece.end) for piece in found] == [
            (1, 4),
            (4, 6),
            (9, 10),
        ]

    def test_ops_that_take_no_time_or_lie_outside_are_left_out(self):
        found = pieces_of(bars((0, 0), (1, 2), (5, 6)), (0, 5), 100)
        assert [piece.bar.label for piece in found] == ["F1"]

    def test_ops_narrower_than_half_a_point_become_columns(self):
        many = bars(*((i, i + 1) for i in range(1000)))
        found = pieces_of(many, (0, 1000), 100)
        assert len(found) <= 200
        assert found[0].start == 0
        assert found[-1].end == 1000

    def test_columns_have_the_shares_of_kinds(self):
        pair = [
            bar
            for i in range(500)
            for bar in (
                *bars((2 * i, 2 * i + 1)),
                *bars((2 * i + 1, 2 * i + 2), kind="B"),
            )
        ]
        found = pieces_of(pair, (0, 1000), 50)
        forwards = sum(
            piece.end - piece.start for piece in found if piece.bar.kind == "F"
        )
        assert forwards == pytest.approx(500, abs=20)


@pytest.mark.parametrize(
    ("bar", "names"),
    [
        (Bar(0, 1, "F", "F", "F12"), {20: "F12", 11: "12", 6: ""}),
        (
            Bar(0, 1, "kernel", "W", "weight_grad12", short="W12"),
            {80: "weight_grad12", 20: "W12"},
        ),
        (Bar(0, 1, "wait", "w", "hold", short=""), {15: "w", 30: "hold", 3: ""}),
    ],
)
def test_the_longest_name_that_fits_is_written(bar, names):
    for points, name in names.items():
        assert name_of(Piece(0, 1, bar), points, 7) == name


class TestGantt:
    def test_every_device_has_a_row_and_a_strip_of_memory(self, result):
        rows, strips = gantt(result).axes
        assert [label.get_text() for label in rows.get_yticklabels()] == [
            "device 0",
            "device 1",
        ]
        assert rows.get_xlim() == strips.get_xlim() == (0, float(result.makespan))
        assert "2 of 2" in texts(gantt(result))

    def test_the_bound_is_a_line_at_its_time(self, result):
        rows = gantt(result).axes[0]
        lines = [line.get_xdata()[0] for line in rows.lines]
        assert lines == [float(result.bound)]
        assert "bound" in texts(gantt(result))

    def test_title_and_caption(self, result):
        rows = gantt(result).axes[0]
        assert rows.get_title(loc="left") == f"two, {result.best_by}"
        assert "makespan 12 us, proved optimal" in texts(gantt(result))
        bare = gantt(result, title="")
        assert bare.axes[0].get_title(loc="left") == ""
        assert "makespan 12 us, proved optimal" not in texts(bare)
        assert gantt(result, title="mine").axes[0].get_title(loc="left") == "mine"

    def test_nothing_lies_outside_of_the_figure(self, result):
        for inches in (3.4, 7.0):
            figure = gantt(result, inches=inches)
            box = figure.get_tightbbox()
            assert box.x0 >= 0 and box.y0 >= 0
            assert box.x1 <= inches and box.y1 <= figure.get_size_inches()[1]

    def test_width_is_what_is_asked_for(self, result):
        assert gantt(result, inches=3.4).get_size_inches()[0] == pytest.approx(3.4)

    @pytest.mark.parametrize("kind", first(1, ["svg", "png", "pdf"]))
    def test_equal_figures_are_equal_bytes(self, result, kind):
        first, second = (figure_bytes(lambda: gantt(result), kind) for _ in range(2))
        assert first == second

    def test_without_a_schedule(self, result):
        empty = result.model_copy(update={"schedule": None})
        with pytest.raises(InputError, match="schedule: there is no schedule in it"):
            gantt(empty)

    def test_without_the_instance_there_is_no_memory(self, result):
        alone = result.model_copy(update={"instance_document": None})
        assert len(gantt(alone).axes) == 1


def test_colours():
    assert darker("#ffffff") == "#b8b8b8"
    assert lightened("#000000", 0.5) == "#808080"
    assert (ink_on(BLUE), ink_on("#f0e442")) == ("#ffffff", "#000000")
    assert look_of("no such kind").is_hatched


@pytest.mark.parametrize(
    ("iterations", "every"), [(20, 1), (84, 1), (85, 2), (10_000, 120)]
)
def test_iterations_are_marked_as_far_as_marks_can_be_told_apart(iterations, every):
    # 7 inches are 504 points: room for 84 marks of 6 points, and 84 x 120 >= 10,000.
    row = Row("device 0", True, bars((0, 1)))
    chart = Chart([row], float(iterations), "us", iterations=list(range(iterations)))
    _, (axes,) = sheet_of(7.0, [14.0])
    frame_chart(axes, chart, 14.0)
    marked = [
        int(text.get_text()) for text in axes.texts if text.get_text().isdecimal()
    ]
    assert marked == list(range(0, iterations, every))
    assert [line.get_xdata()[0] for line in axes.lines] == marked


def test_more_rows_than_a_picture_can_show_are_refused():
    count = LAYOUT.most_charted + 1
    ops = [
        ScheduledOp(
            id=f"F{n}", kind="F", device=n, stage=n, microbatch=0, start=0, end=1
        )
        for n in range(count)
    ]
    schedule = ScheduleDocument(time_unit="us", ops=ops)
    drawn = Drawn(ScheduleView("many", schedule, None, ViewOptions()), ANY)
    with pytest.raises(InputError, match=r"expected at most 2,000 rows, got 2,001"):
        schedule_figure(drawn, None, 7.0)
