"""Curves over memory and micro-batches: every point true, each helped by its neighbours."""

import json
from decimal import Decimal

import pytest
from typer.testing import CliRunner

import ppsolve
from ppsolve.models.core.result import StopReason
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.fields import Times
from ppsolve.solver.cli.main import build
from ppsolve.solver.studies import cases as search
from ppsolve.solver.studies.changes import changes_of, values_of
from ppsolve.solver.studies.curve import ends_first
from ppsolve.solver.studies.generate.flags import PerDevice

PIPELINE = ppsolve.PipelineInstance(
    name="three",
    num_devices=3,
    num_microbatches=5,
    times={
        "forward": [3, 5, 4],
        "backward_input": [4, 4, 6],
        "backward_weight": [3, 2, 5],
    },
    memory={"capacity": 2, "activation": 1},
)


@pytest.fixture(scope="module")
def over_memory():
    return ppsolve.curve(PIPELINE, "capacity", [1, 2, 3, 4, 5], time_limit=30)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 13])
def test_every_point_is_visited_once_ends_first(count):
    order = ends_first(count)
    assert sorted(order) == list(range(count))
    assert order[:2] == [count - 1, 0][: max(1, min(2, count))] or count == 1


def test_each_point_is_the_optimum_of_its_capacity(over_memory):
    for point in over_memory.points:
        alone = json.loads(PIPELINE.model_dump_json())
        alone["memory"]["capacity"] = point.at
        found = ppsolve.optimize(ppsolve.parse_instance(alone), time_limit=20)
        assert (point.status, point.value) == ("OPTIMAL", found.value)


def test_more_memory_never_costs_time(over_memory):
    values = [point.value for point in over_memory.points]
    assert values == sorted(values, reverse=True)
    assert values[0] > values[-1]


def test_points_between_ends_that_met_are_closed_without_a_search(monkeypatch):
    solved = []
    usual = search.optimize

    def noted(instance, **options):
        solved.append(instance.memory.capacity)
        return usual(instance, **options)

    monkeypatch.setattr(search, "optimize", noted)
    found = ppsolve.curve(PIPELINE, "capacity", range(10, 30), time_limit=20)
    assert len(solved) <= 2
    assert all(point.status == "OPTIMAL" for point in found.points)


def test_what_does_not_fit_is_not_searched_with_less_memory(monkeypatch):
    solved = []
    usual = search.optimize

    def noted(instance, **options):
        solved.append(instance.memory.capacity)
        return usual(instance, **options)

    monkeypatch.setattr(search, "optimize", noted)
    found = ppsolve.curve(PIPELINE, "capacity", [0.25, 0.5], time_limit=20)
    assert solved == [Decimal("0.5")]
    assert [point.status for point in found.points] == ["INFEASIBLE", "INFEASIBLE"]
    assert found.points[0].reason == found.points[1].reason


@pytest.mark.slow
def test_a_pipeline_with_memory_modes_has_points_where_all_is_kept_too():
    """Each is the optimum of its own pipeline, and keeping all is never better."""
    recompute = {"modes": [{"name": "full", "time": 1, "held": 0}]}
    data = json.loads(PIPELINE.model_dump_json())
    data["memory"] |= {"recompute": recompute}
    found = ppsolve.curve(
        ppsolve.parse_instance(data), "capacity", [1, 2], time_limit=30
    )
    for free, kept in zip(found.points, found.kept, strict=True):
        data["memory"] |= {"capacity": free.at, "recompute": recompute}
        assert (
            free.value
            == ppsolve.optimize(ppsolve.parse_instance(data), time_limit=20).value
        )
        del data["memory"]["recompute"]
        assert (
            kept.value
            == ppsolve.optimize(ppsolve.parse_instance(data), time_limit=20).value
        )
        assert free.value <= kept.value
    assert found.points[0].value < found.kept[0].value


def test_no_time_is_still_some_for_every_point():
    data = json.loads(PIPELINE.model_dump_json())
    data["memory"] |= {"recompute": {"modes": [{"name": "full", "time": 1, "held": 0}]}}
    found = ppsolve.curve(
        ppsolve.parse_instance(data), "capacity", [1, 2], time_limit=0.01
    )
    assert all(point.value is not None for point in (*found.points, *found.kept))


def test_too_little_memory_is_infeasible_there_and_below():
    pipeline = ppsolve.PipelineInstance(
        num_devices=2,
        num_microbatches=3,
        times={"forward": 1, "backward": 2},
        memory={"capacity": 4, "activation": 2},
    )
    found = ppsolve.curve(pipeline, "capacity", [0.5, 1, 2, 4], time_limit=20)
    assert [point.status for point in found.points] == [
        "INFEASIBLE",
        "INFEASIBLE",
        "OPTIMAL",
        "OPTIMAL",
    ]
    assert found.points[0].value is found.points[0].bound is None
    assert "memory" in found.points[0].reason


@pytest.mark.parametrize("assignment", ["fixed", "free"])
def test_replicas_hand_on_their_assignments(assignment, monkeypatch):
    pipeline = ppsolve.PipelineInstance(
        num_devices=2,
        num_microbatches=4,
        times={"forward": 1, "backward": 2},
        memory={"capacity": 1, "activation": 1},
        replicas={"count": 2, "assignment": assignment},
    )
    handed = []
    usual = search.optimize

    def noted(instance, *, start, **options):
        handed.append(start is not None)
        return usual(instance, start=start, **options)

    monkeypatch.setattr(search, "optimize", noted)
    found = ppsolve.curve(pipeline, "capacity", [1, 2, 3], time_limit=2)
    assert found.points[0].value >= found.points[-1].value
    assert any(handed) or all(point.status == "OPTIMAL" for point in found.points)


def test_micro_batches_say_their_own_share():
    pipeline = ppsolve.PipelineInstance(
        num_devices=2, num_microbatches=1, times={"forward": 1, "backward": 2}
    )
    found = ppsolve.curve(pipeline, "microbatches", [4, 1, 2], time_limit=20)
    assert [(p.at, p.value) for p in found.points] == [(1, 6), (2, 9), (4, 15)]
    assert found.points[-1].microbatch_time == 15 / 4
    tenths = pipeline.model_copy(update={"times": Times(forward=9.72, backward=19.44)})
    found = ppsolve.curve(tenths, "microbatches", [4], time_limit=20)
    assert repr(found.points[0].microbatch_time) == "36.45"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("4", [Decimal(4)]),
        ("1,2.5", [Decimal(1), Decimal("2.5")]),
        ("1:3", [Decimal(1), Decimal(2), Decimal(3)]),
        ("0.5p:1p:0.25p", [PerDevice(Decimal(x)) for x in ("0.5", "0.75", "1")]),
        ("1p,6", [PerDevice(Decimal(1)), Decimal(6)]),
    ],
)
def test_values_are_read(text, values):
    assert values_of(text) == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--capacity: expected a number"),
        ("1:2:3:4", "--capacity: expected FROM:TO:STEP in one unit"),
        ("1p:2:1", "--capacity: expected FROM:TO:STEP in one unit"),
        ("2:1", "--capacity: expected FROM <= TO and STEP > 0"),
        ("1:2:0", "--capacity: expected FROM <= TO and STEP > 0"),
        ("1:100000", "--capacity: expected at most 1000 points, got 100000"),
        ("xp", "--capacity: expected a number"),
    ],
)
def test_wrong_values_are_named(text, message):
    with pytest.raises(InputError, match=f"^{message}"):
        changes_of("capacity", text)


@pytest.mark.parametrize(
    ("over", "values", "message"),
    [
        ("capacity", [], "--capacity: expected at least one value"),
        ("microbatches", [0], "--microbatches: expected a whole number >= 1, got 0"),
        (
            "microbatches",
            [1.5],
            "--microbatches: expected a whole number >= 1, got 1.5",
        ),
        ("stages", [1], 'over: expected capacity, microbatches, got "stages"'),
    ],
)
def test_wrong_points_are_named(over, values, message):
    with pytest.raises(InputError, match=message):
        ppsolve.curve(PIPELINE, over, values)


def test_a_pipeline_without_memory_and_other_kinds_are_refused():
    bare = ppsolve.PipelineInstance(
        num_devices=2, num_microbatches=1, times={"forward": 1, "backward": 2}
    )
    with pytest.raises(
        InputError, match="--capacity memory: this pipeline has no memory"
    ):
        ppsolve.curve(bare, "capacity", [1])
    graph = ppsolve.GraphInstance(
        resources=["a"], ops=[{"id": "x", "duration": 1, "resources": ["a"]}]
    )
    with pytest.raises(
        InputError, match='expected a pipeline, this is of kind "graph"'
    ):
        ppsolve.curve(graph, "capacity", [1])


def test_ctrl_c_ends_the_curve_not_one_point(monkeypatch):
    seen = []

    def interrupted(instance, **keywords):
        seen.append(instance)
        found = ppsolve.optimize(instance, **keywords)
        return found.model_copy(
            update={"stop_reason": StopReason.INTERRUPTED, "bound": 0}
        )

    monkeypatch.setattr(search, "optimize", interrupted)
    found = ppsolve.curve(PIPELINE, "capacity", [1, 2, 3], time_limit=20)
    assert found.interrupted
    assert len(seen) == 1
    assert found.points[-1].value is not None


def invoke(*arguments):
    return CliRunner().invoke(build(), [*map(str, arguments)])


@pytest.fixture
def instance(tmp_path):
    path = tmp_path / "instance.json"
    path.write_text(PIPELINE.model_dump_json())
    return path


def test_the_command_writes_reads_and_draws(instance, tmp_path):
    output = tmp_path / "curve.json"
    done = invoke(
        "curve", instance, "--capacity", "1:3", "-t", 20, "-o", output, "--json", "-q"
    )
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert [point["capacity"] for point in found["points"]] == [1, 2, 3]
    assert {"value", "bound", "gap", "status", "best_by"} <= found["points"][0].keys()
    assert json.loads(output.read_text()) == found
    done = invoke("curve", instance, "--capacity", "1:3", "-t", 20, "-o", output)
    assert "3 points, 3 proved" in done.stdout.replace("\n", " ")
    assert "proved" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "expected exactly one of --capacity, --microbatches"),
        (("--capacity", "1", "--microbatches", "1"), "expected exactly one of"),
        (("--capacity", "1", "--chart", "x.pdf"), "expected a file name ending in"),
    ],
)
def test_the_command_names_what_is_wrong(instance, options, message):
    done = invoke("curve", instance, *options)
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


def test_a_curve_has_heuristics_and_bubble_ratios_at_every_point(tmp_path):
    """Ops of 12 in all on each of three devices: a schedule of T has the bubble 1 - 60 / T."""
    even = PIPELINE.model_copy(
        update={
            "times": Times(forward=4, backward_input=4, backward_weight=4),
            "num_microbatches": 5,
        }
    )
    names = ["zb-1p", "gpipe", "zbv"]
    curve = ppsolve.curve(
        even, "capacity", [3, 5], compared=names, rates=True, time_limit=20
    )
    for point in curve.points:
        assert point.bubble_ratio == pytest.approx(1 - 60 / point.value)
        assert point.bound_bubble_ratio == pytest.approx(1 - 60 / point.bound)
        assert [entry.name for entry in point.heuristics] == names
    small, large = (point.heuristics for point in curve.points)
    # GPipe holds all five micro-batches; a linear placement has no V.
    assert [entry.status for entry in small] == [
        "feasible",
        "infeasible",
        "not_applicable",
    ]
    assert [entry.value is None for entry in large] == [False, False, True]
    path = tmp_path / "curve.json"
    curve.save(path)
    shown = CliRunner().invoke(build(), ["show", str(path), "--width", "120"]).stdout
    first = next(line for line in shown.splitlines() if line.split()[:1] == ["3"])
    point = curve.points[0]
    ratios = [f"{point.bubble_ratio:.4f}", f"{point.bound_bubble_ratio:.4f}"]
    zb_1p = f"{point.heuristics[0].bubble_ratio:.4f}"
    assert first.split()[1:6] == [*ratios, zb_1p, "infeasible", "not"]
    assert "bubble ratio" in shown


def test_the_command_of_a_curve_takes_heuristics(tmp_path):
    instance, output = tmp_path / "one.json", tmp_path / "curve.json"
    instance.write_text(PIPELINE.model_dump_json(by_alias=True))
    words = ["curve", str(instance), "--capacity", "3,5", "--rates", "-q"]
    asked = [*words, "--heuristics", "gpipe", "-t", "10", "-o", str(output)]
    assert CliRunner().invoke(build(), asked).exit_code == 0
    data = json.loads(output.read_text())
    assert data["rates"]
    assert [point["heuristics"][0]["name"] for point in data["points"]] == ["gpipe"] * 2
    wrong = CliRunner().invoke(build(), [*words, "--heuristics", "gpip"])
    assert wrong.exit_code != 0
