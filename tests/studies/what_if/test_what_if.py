"""What changes gain: every row the optimum of the pipeline that it stands for."""

import json
from itertools import pairwise

import pytest

import ppsolve
from ppsolve.models.core.result import StopReason
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.studies import cases as search
from ppsolve.solver.studies.changes import changes_of
from tests.marks import first

PIPELINE = ppsolve.PipelineInstance(
    name="two",
    num_devices=2,
    num_microbatches=3,
    times={"forward": [2, 4], "backward": 6},
    p2p={"latency": 2},
    memory={
        "capacity": 2,
        "activation": 1,
        "recompute": {
            "modes": [{"name": "full", "time": 2, "held": 0.5}],
            "decide": "stage",
        },
    },
)
CHANGES = {
    "slow": "1x1.5",
    "microbatches": 4,
    "capacity": "0.5p",
    "placements": "linear,vshape",
    "recompute": "none",
    "comm": "x0.5",
}


@pytest.fixture(scope="module")
def found():
    return ppsolve.what_if(PIPELINE, CHANGES, time_limit=60)


def changed(changes):
    made = PIPELINE
    for axis, value in changes.items():
        (change,) = changes_of(axis, value)
        made = change(made)
    return made


def test_rows_are_each_change_alone_then_one_of_each_together(found):
    alone = [
        {"microbatches": "4"},
        {"capacity": "0.5p"},
        {"placements": "linear"},
        {"placements": "vshape"},
        {"recompute": "none"},
        {"comm": "x0.5"},
        {"slow": "1x1.5"},
    ]
    rest = {"recompute": "none", "comm": "x0.5", "slow": "1x1.5"}
    both = [
        {"microbatches": "4", "capacity": "0.5p", "placements": name, **rest}
        for name in ("linear", "vshape")
    ]
    assert [row.changes for row in found.rows] == [{}, *alone, *both]
    assert list(found.rows[-1].changes) == list(both[1])


@pytest.mark.slow
def test_each_row_is_the_optimum_of_its_pipeline(found):
    base = ppsolve.optimize(PIPELINE, time_limit=20)
    for row in found.rows:
        instance = changed(row.changes)
        alone = ppsolve.optimize(instance, time_limit=20)
        assert (row.status, row.value, row.bound) == (
            "OPTIMAL",
            alone.value,
            alone.bound,
        )
        assert row.microbatches == instance.num_microbatches
        assert row.peak_memory <= max(instance.memory.capacity, 0)
        gain = 1 - (alone.value / row.microbatches) / (base.value / 3)
        assert row.gain == pytest.approx(gain, abs=1e-9)


def test_a_change_that_changes_nothing_costs_no_search(monkeypatch):
    solved = []
    usual = search.optimize

    def noted(instance, **options):
        solved.append(instance.placement)
        return usual(instance, **options)

    monkeypatch.setattr(search, "optimize", noted)
    found = ppsolve.what_if(
        PIPELINE, {"placements": ["linear", "vshape"]}, time_limit=20
    )
    assert solved == ["linear", "vshape"]
    assert found.rows[1].value == found.rows[0].value
    assert found.rows[1].gain == 0


@pytest.mark.slow
def test_more_memory_never_loses(monkeypatch):
    """A schedule for less memory is one for more, even where the search for more finds none."""
    usual = search.optimize

    def blind(instance, **options):
        result = usual(instance, **options)
        if instance.memory.capacity > 2:
            result = result.model_copy(
                update={"value": None, "bound": None, "gap": None}
            )
        return result

    monkeypatch.setattr(search, "optimize", blind)
    found = ppsolve.what_if(PIPELINE, {"capacity": [3, 5]}, time_limit=2)
    assert [row.value for row in found.rows] == [found.rows[0].value] * 3


RECOMPUTING = ppsolve.PipelineInstance(
    name="three",
    num_devices=3,
    num_microbatches=4,
    times={"forward": [1, 1, 2], "backward": [6, 2, 4]},
    memory={
        "capacity": 2,
        "activation": 1.2,
        "recompute": {"modes": [{"name": "full", "time": 2, "held": 0.5}]},
    },
)
DECISIONS = ["none", "all", "window", "stage", "microbatch"]


@pytest.mark.parametrize("order", first(1, [DECISIONS, DECISIONS[::-1]]))
def test_results_are_shared_with_those_who_may_choose_more(order):
    """Each row is the optimum that the decision has alone: 64, 53, 52, 45 and 45 at capacity 2."""
    found = ppsolve.what_if(RECOMPUTING, {"recompute": order}, time_limit=60)
    values = {row.changes.get("recompute"): row.value for row in found.rows}
    assert all(row.status == "OPTIMAL" for row in found.rows)
    assert [values[name] for name in DECISIONS] == [64, 53, 52, 45, 45]
    assert values[None] == values["stage"]


def test_windows_and_stages_choose_what_the_other_cannot():
    made = [
        changes_of("recompute", name)[0](RECOMPUTING) for name in ("stage", "window")
    ]
    for instances in (made, made[::-1]):
        assert list(search.freer_pairs(instances)) == []
    narrow = changes_of("recompute", "all")[0](RECOMPUTING)
    assert list(search.freer_pairs([made[0], narrow])) == [(1, 0)]


@pytest.mark.slow
def test_who_may_choose_more_begins_with_what_others_found(monkeypatch):
    usual, begun = search.optimize, []

    def short(instance, *, start, **options):
        recompute = instance.memory.recompute
        if start is not None:
            assert ppsolve.check(instance, start) == []
            begun.append(recompute.decide)
        result = usual(instance, start=start, **options)
        if recompute is None or recompute.decide == "all":
            return result
        return result.model_copy(update={"value": None, "bound": None})

    monkeypatch.setattr(search, "optimize", short)
    found = ppsolve.what_if(
        RECOMPUTING, {"recompute": ["none", "stage", "microbatch"]}, time_limit=2
    )
    assert "microbatch" in begun
    assert [row.value for row in found.rows] == [64, 64, 64, 64]
    more = ppsolve.what_if(RECOMPUTING, {"recompute": ["all", "window"]}, time_limit=2)
    assert [row.value for row in more.rows] == [53, 53, 53]


def test_capacities_of_devices_are_compared_one_by_one():
    """[1, 3] is neither more nor less than 2, though their sums are equal."""
    for given in ([1, 3], [3, 1]):
        memory = {"capacity": given, "activation": 1}
        fields = {"times": {"forward": [2, 4], "backward": 6}, "memory": memory}
        fields["p2p"] = {"latency": 10}
        pipeline = ppsolve.PipelineInstance(num_devices=2, num_microbatches=4, **fields)
        found = ppsolve.what_if(pipeline, {"capacity": 2}, time_limit=20)
        for row, capacity in zip(found.rows, (given, 2), strict=True):
            fields["memory"] = {"capacity": capacity, "activation": 1}
            alone = ppsolve.PipelineInstance(
                num_devices=2, num_microbatches=4, **fields
            )
            assert row.value == ppsolve.optimize(alone, time_limit=20).value


def test_the_peak_is_that_of_the_device_that_holds_most():
    memory = {"capacity": 4, "activation": [1, 3]}
    pipeline = PIPELINE.parse(
        {**dict(PIPELINE), "num_microbatches": 1, "memory": memory}
    )
    found = ppsolve.what_if(pipeline, {"comm": "x2"}, time_limit=20)
    assert [row.peak_memory for row in found.rows] == [3, 3]


def test_what_does_not_fit_has_no_gain_and_a_reason():
    found = ppsolve.what_if(
        PIPELINE, {"capacity": 0.5, "recompute": "none"}, time_limit=20
    )
    row = found.rows[-1]
    assert (row.status, row.value, row.bound, row.gain) == (
        "INFEASIBLE",
        None,
        None,
        None,
    )
    assert "memory" in row.reason


def test_a_pipeline_that_does_not_fit_has_rows_that_do():
    memory = {"capacity": 0.5, "activation": 1}
    pipeline = PIPELINE.parse({**dict(PIPELINE), "memory": memory})
    found = ppsolve.what_if(pipeline, {"capacity": [1]}, time_limit=20)
    assert [row.status for row in found.rows] == ["INFEASIBLE", "OPTIMAL"]
    assert [row.gain for row in found.rows] == [None, None]


def test_functions_of_ones_own_are_changes():
    def halved(pipeline):
        return pipeline.model_copy(
            update={"times": PIPELINE.times.model_copy(update=half)}
        )

    half = {"forward": (1, 2), "backward": 3}
    found = ppsolve.what_if(
        PIPELINE, {"new kernels": halved, "capacity": 3}, time_limit=20
    )
    assert [row.changes for row in found.rows] == [
        {},
        {"capacity": "3"},
        {"new kernels": ""},
        {"capacity": "3", "new kernels": ""},
    ]
    assert found.rows[2].gain > 0.3


def test_rows_come_as_they_are_found_and_the_document_comes_back(found):
    seen = []
    last = ppsolve.what_if(
        PIPELINE, {"comm": ["x0", "x2"]}, time_limit=20, on_row=seen.append
    )
    counts = [sum(row.value is not None for row in each.rows) for each in seen]
    assert counts[-1] == 3
    assert all(a <= b for a, b in pairwise(counts))
    assert seen[-1].rows == last.rows
    data = json.loads(found.model_dump_json())
    assert (data["kind"], data["schema"]) == ("what-if", 1)
    assert type(found).model_validate(data) == found


def test_ctrl_c_ends_all_rows(monkeypatch):
    def interrupted(instance, **keywords):
        result = ppsolve.optimize(instance, **keywords)
        return result.model_copy(update={"stop_reason": StopReason.INTERRUPTED})

    monkeypatch.setattr(search, "optimize", interrupted)
    found = ppsolve.what_if(PIPELINE, {"comm": ["x0", "x2"]}, time_limit=20)
    assert found.interrupted
    assert [row.status for row in found.rows] == ["OPTIMAL", "UNKNOWN", "UNKNOWN"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {},
            "expected a change: --microbatches, --slices, --capacity, --placements, --recompute",
        ),
        (
            {"microbatches": range(1, 200)},
            "expected changes that make at most 100 rows, got 200",
        ),
        (
            {"microbatches": range(1, 11), "capacity": range(1, 11)},
            "expected changes that make at most 100 rows, got 121",
        ),
        ({"sed": 2}, 'unknown change "sed"'),
        (
            {"comm": lambda pipeline: pipeline},
            "--comm: expected a factor such as x0.5, got",
        ),
        ({"fillers": "x0"}, "two: --fillers fillers: this pipeline has no fillers"),
        (
            {"comm": "x2", "slow": "7x2"},
            "two: --slow: expected a device from 0 to 1, got 7",
        ),
    ],
)
def test_what_cannot_be_asked_is_named(changes, message):
    with pytest.raises(InputError) as caught:
        ppsolve.what_if(PIPELINE, changes)
    assert str(caught.value).startswith(message)


def test_only_pipelines_and_some_time():
    graph = ppsolve.GraphInstance(
        name="g", resources=[], ops=[{"id": "x", "duration": 1}]
    )
    with pytest.raises(
        InputError, match='g: expected a pipeline, this is of kind "graph"'
    ):
        ppsolve.what_if(graph, {"comm": "x2"})
    with pytest.raises(InputError, match="time_limit: expected seconds above 0, got 0"):
        ppsolve.what_if(PIPELINE, {"comm": "x2"}, time_limit=0)
