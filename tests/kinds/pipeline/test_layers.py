"""Layers that stages share out: splits, types of recomputing, and orders."""

from __future__ import annotations

import copy
import random
from decimal import Decimal
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from split_layers import FOLDER, has_no_room, of_sapp, sapp, step_of, under_order

import ppsolve
from ppsolve.models.core.result import Status, StopReason
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.layers import split_by
from ppsolve.solver.api.bound_check import BoundCheck, check_bound
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.pipeline.kind import PIPELINE
from ppsolve.solver.kinds.pipeline.layers import steps as layers_steps
from ppsolve.solver.kinds.pipeline.layers.ordered import ORDERED_STEPS, OrderedSplits
from ppsolve.solver.kinds.pipeline.layers.search import LayerSearch
from ppsolve.solver.kinds.pipeline.published import PUBLISHED
from ppsolve.solver.run.params import SearchParams
from ppsolve.solver.views.pipeline import PipelineDrawing
from ppsolve.solver.views.schedule_view import ScheduleView, ViewOptions
from tests.marks import first

LAYERS: dict[str, Any] = {
    "first": {"forward": 1, "backward": 2, "static": 1},
    "body": {"count": 5, "forward": 2, "backward": 4, "activation": 1, "static": 0.5},
    "last": {"forward": 3, "backward": 6},
    "recompute": [{"name": "full", "time": 2, "held": 0.25}],
}


def pipeline(**fields: Any) -> dict[str, Any]:
    """Return a pipeline of 2 devices and 3 micro-batches that share out 5 layers."""
    return {
        "name": "shared-out",
        "num_devices": 2,
        "num_microbatches": 3,
        "p2p": {"latency": 1},
        "layers": copy.deepcopy(LAYERS),
        "memory": {"capacity": 7},
        **fields,
    }


def drawn(seed: int) -> dict[str, Any]:
    """Return a random pipeline with few splits."""
    draw = random.Random(seed)
    layers = copy.deepcopy(LAYERS)
    layers["body"] |= {"count": draw.choice([3, 4]), "forward": draw.randint(1, 4)}
    layers["last"] |= {"forward": draw.randint(0, 6)}
    layers["recompute"][0] |= {"time": draw.randint(1, 4)}
    data = pipeline(layers=layers, memory={"capacity": draw.choice([5, 6, 8])})
    layers["min_per_stage"] = draw.choice([0, 1, [0, 1], [1, 0]])
    speed = draw.choice([None, [1, 0.5], [0.8, 2]])
    return data | ({"speed": speed} if speed else {})


def every_split(instance: PipelineInstance) -> list[Any]:
    """Return all splits of few layers over two stages and two types."""
    count, least = instance.layers.body.count, instance.layers.least(2)
    found = []
    for row in product(range(count + 1), repeat=4):
        counts = np.array(row).reshape(2, 2)
        if counts.sum() == count and (counts.sum(axis=0) >= least).all():
            found.append(counts)
    return found


@pytest.mark.parametrize("seed", first(1, range(8)))
def test_the_best_of_all_splits_is_found_and_the_bound_holds(seed: int) -> None:
    """Every split is solved to its optimum as a pipeline of its own."""
    instance = PipelineInstance.parse(drawn(seed))
    optima = []
    for counts in every_split(instance):
        alone = ppsolve.optimize(split_by(instance, counts), time_limit=5)
        if alone.status is not Status.INFEASIBLE:
            assert alone.status is Status.OPTIMAL
            optima.append(alone.value)
    found = ppsolve.optimize(instance, time_limit=2)
    assert found.value == min(optima)
    assert found.bound <= min(optima)
    assert ppsolve.check(instance, found) == []
    assert sum(sum(row.values()) for row in found.layers) == instance.layers.body.count


def test_memory_for_no_split_is_proved() -> None:
    """Not even one micro-batch in flight fits."""
    found = ppsolve.optimize(
        PipelineInstance.parse(pipeline(memory={"capacity": 1})), time_limit=5
    )
    assert found.status is Status.INFEASIBLE
    assert "no split" in found.reason


REFUSED = [
    (
        {"layers": {**LAYERS, "body": {**LAYERS["body"], "count": 1}}},
        "layers.body.count",
        "2 lay",
    ),
    (
        {"layers": {**LAYERS, "recompute": LAYERS["recompute"] * 2}},
        "layers.recompute[1].name",
        "own",
    ),
    (
        {"layers": {**LAYERS, "recompute": [{"name": "full", "time": 1, "held": 2}]}},
        "layers.recompute[0].held",
        "at most the activation",
    ),
    (
        {
            "layers": {
                **LAYERS,
                "last": {"forward": 1, "backward_input": 1, "backward_weight": 1},
            }
        },
        "layers.last",
        "expected backward, as of the body",
    ),
    ({"times": {"forward": 1, "backward": 2}}, "times.forward", "in layers, got both"),
    (
        {"memory": {"capacity": 4, "activation": 2}},
        "memory.activation",
        "in layers, got both",
    ),
    ({"placement": "bidirectional", "num_microbatches": 4}, "placement", "beside"),
]


@pytest.mark.parametrize(("fields", "field", "words"), REFUSED)
def test_wrong_layers_are_refused_by_field(fields: Any, field: str, words: str) -> None:
    """One clear error names the field and what would be right."""
    with pytest.raises(InputError) as error:
        PipelineInstance.parse(pipeline(**fields))
    assert error.value.field == field
    assert words in str(error.value)


def test_instances_are_written_as_they_are_read() -> None:
    """Times of the even split stand beside the layers and are taken again."""
    instance = PipelineInstance.parse(pipeline())
    again = PipelineInstance.parse(instance.model_dump(mode="json", by_alias=True))
    assert again == instance


def test_results_of_decimal_layers_are_read_back(tmp_path: Path) -> None:
    """Sums such as 3 x 10.1 + 2.2 = 32.5 are doubles in a file, and decimals when it is read."""
    layers = copy.deepcopy(LAYERS)
    layers["first"] |= {"forward": 2.2, "activation": 0.2}
    layers["body"] |= {"forward": 10.1, "static": 0.7}
    instance = PipelineInstance.parse(pipeline(layers=layers))
    path = tmp_path / "result.json"
    ppsolve.optimize(instance, time_limit=1).save(path)
    document = read_json(path)
    again = PipelineInstance.parse(document["instance_document"])
    assert again == instance
    assert again.times.forward[0] == Decimal("32.5")
    assert ppsolve.check(again, document) == []


def test_reports_and_drawn_schedules_name_the_split() -> None:
    """Alike stages stand together, in runs."""
    instance = PipelineInstance.parse(
        pipeline(num_devices=5, layers={"body": LAYERS["body"]})
    )
    found = ppsolve.optimize(instance, time_limit=1)
    assert ("stages 0 to 4", "1 layer: keep 1") in PipelineDrawing().facts(
        found, instance
    )
    split = ({"keep": 2}, {"keep": 4, "full": 1}, {"keep": 2}, {"keep": 2}, {"full": 1})
    other = found.model_copy(update={"layers": split})
    assert found.schedule is not None
    view = PipelineDrawing().view(
        ScheduleView("", found.schedule, other, ViewOptions())
    )
    assert list(view.facts)[-3:] == [
        ("stages 0, 2 to 3", "2 layers: keep 2"),
        ("stage 1", "5 layers: keep 4, full 1"),
        ("stage 4", "1 layer: full 1"),
    ]


def test_a_result_with_another_split_is_refused() -> None:
    """The checker judges the split that the result claims."""
    instance = PipelineInstance.parse(pipeline())
    document = ppsolve.optimize(instance, time_limit=1).model_dump(mode="json")
    for change in (
        lambda d: d.update(layers=None),
        lambda d: d["layers"].pop(),
        lambda d: d["layers"][0].update(keep=9),
        lambda d: d["layers"][0].update(nap=1),
        lambda d: d["layers"].__setitem__(0, 3),
    ):
        wrong = copy.deepcopy(document)
        change(wrong)
        assert "layers" in {each.rule for each in ppsolve.check(instance, wrong)}


def with_steps() -> list[Any]:
    """Return the cases of the toolkit with the steps that it simulates."""
    cases = [sapp(path.stem) for path in sorted(FOLDER.glob("sapp_*.json"))]
    return [(case, run) for case in cases for run in case["runs"] if "simulated" in run]


def test_a_simulated_step_is_that_of_the_toolkit() -> None:
    """The split that it chose takes as long under its order, and holds as much."""
    for case, run in with_steps():
        instance = of_sapp(case, max(run["simulated"]["peak_memory"]))
        plan = run["layers_per_stage"]
        counts = np.zeros(
            (len(instance.layers.names), instance.num_stages), dtype=np.int64
        )
        for kind, rows in plan.items():
            name = "keep" if kind == "none" else kind
            counts[instance.layers.names.index(name)] = np.ravel(rows)
        splits = under_order(case, instance)
        value = splits.rate(counts)
        assert value is not None
        assert splits.schedule(counts).makespan == value
        assert splits.scale.time(value) == pytest.approx(step_of(run))
        less = of_sapp(case, max(run["simulated"]["peak_memory"]) - 1)
        assert under_order(case, less).rate(counts) is None


@pytest.mark.parametrize(
    "name", first(1, ["sapp_seq_p8_m32_v1", "sapp_test_p8_m32_v1"])
)
def test_splits_are_never_worse_than_those_of_the_toolkit(name: str) -> None:
    """Under its order, within its limits; what it proves infeasible has no split."""
    case = sapp(name)
    for run in case["runs"]:
        splits = under_order(case, of_sapp(case, run["memory_limit"]))
        found = splits.search(Clock(), 0, steps=3000)
        assert found.is_infeasible == ("simulated" not in run)
        if found.counts is not None:
            step = splits.scale.time(splits.schedule(found.counts).makespan)
            assert splits.scale.time(found.bound) <= step <= step_of(run) * (1 + 1e-9)


def test_limits_of_slices_are_infeasible_with_one_more_in_flight() -> None:
    """Devices - stage + slices - 1 are held in the model of the toolkit, which proves three."""
    case = sapp("sapp_seq_p8_m32_v1_k2")
    for run in case["runs"]:
        instance = of_sapp(case, run["memory_limit"])
        assert has_no_room(case, instance, under_order(case, instance)) == (
            "simulated" not in run
        )


@pytest.mark.parametrize("seed", first(3, range(6)))
def test_the_bound_of_an_order_holds_for_every_split_that_fits(seed: int) -> None:
    """Every split is timed; the search finds the best one, and types that fit."""
    name, placement = [("1f1b", "linear"), ("zb-h1", "linear")][seed % 2]
    data = drawn(seed)
    if name == "zb-h1":
        for cost in (data["layers"][part] for part in ("first", "body", "last")):
            cost["backward_input"] = cost["backward_weight"] = cost.pop("backward") / 2
    instance = PipelineInstance.parse(data | {"placement": placement})
    splits = OrderedSplits.of_heuristic(
        instance, next(each for each in PUBLISHED if each.name == name)
    )
    values = []
    for counts in every_split(instance):
        schedule = splits.schedule(counts)
        fits = not check_schedule(schedule.problem, schedule)
        value = splits.rate(counts)
        assert value == (schedule.makespan if fits else None)
        values += [value] if fits else []
        fitted = splits.fit.fitted(
            counts, np.ones(2, dtype=np.bool_), random.Random(seed)
        )
        if fits:
            assert splits.rate(fitted) is not None
            assert (fitted.sum(axis=0) == counts.sum(axis=0)).all()
    found = splits.search(Clock(), 0, steps=300)
    assert found.is_infeasible == (not values)
    if values:
        assert splits.rate(found.counts) == min(values)
        assert found.bound == min(values)


@pytest.mark.parametrize("objective", ["makespan", "device_span"])
def test_the_work_of_all_layers_is_a_bound_without_any_time(objective: str) -> None:
    """3 micro-batches of 1 + 2 + 5 x (2 + 4) + 3 + 6 = 42 on two devices."""
    task = PIPELINE.task(PipelineInstance.parse(pipeline(objective=objective)))
    task.find_bounds(Clock(0))
    assert task.board.bound.value == task.scale.ticks(Fraction(3 * 42, 2))


def test_splits_are_searched_until_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the orders of the best split are proved at once, further ones have other seeds."""
    seeds = []
    search = layers_steps.search_splits

    def noted(turn: Any, again: int) -> None:
        seeds.append(again)
        search(turn, again)

    monkeypatch.setattr(layers_steps, "search_splits", noted)
    layers = {**LAYERS, "body": {**LAYERS["body"], "count": 9}}
    instance = PipelineInstance.parse(pipeline(layers=layers, num_devices=4))
    found = ppsolve.optimize(instance, time_limit=2)
    assert found.stop_reason is StopReason.TIME
    assert seeds[:3] == [1, 2, 3]
    assert {step.name: step for step in found.steps}[
        "further splits"
    ].value == found.value


def test_a_deterministic_limit_bounds_the_splits_that_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many ops in each unit, whatever the machine."""
    tried = []

    def few(rate: Any, seed: int, steps: int, **_: Any) -> LayerSearch:
        tried.append(steps)
        return LayerSearch(rate, seed, 2)

    monkeypatch.setattr(layers_steps, "LayerSearch", few)
    instance = PipelineInstance.parse(pipeline())
    ops = PIPELINE.task(instance).problem.num_ops
    for limit in (0.1, 0.2, 1e4):
        ppsolve.optimize(instance, time_limit=limit, deterministic=True)
    per_unit = SearchParams().modes.split_ops
    assert tried == [
        int(0.1 * per_unit / ops),
        int(0.2 * per_unit / ops),
        ORDERED_STEPS,
    ]


def test_a_deterministic_run_says_that_its_effort_ended_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No clock runs, so that no time limit was reached."""
    monkeypatch.setattr(layers_steps, "ORDERED_STEPS", 20)
    found = ppsolve.optimize(PipelineInstance.parse(pipeline()), deterministic=True)
    assert found.status is Status.FEASIBLE
    assert found.stop_reason is StopReason.DETERMINISTIC


def test_a_better_even_split_refutes_a_bound_and_proves_none() -> None:
    """One layer a device: 3 for each of two micro-batches and 3 to fill and drain, 9 in all."""
    body = {"count": 2, "forward": 1, "backward": 2}
    instance = PipelineInstance.parse(
        {"num_devices": 2, "num_microbatches": 2, "layers": {"body": body}}
    )
    assert check_bound(instance, {"bound": 9}).proved_by == "layers"
    assert check_bound(instance, {"bound": 10}) == BoundCheck(10, None, 9)
    # Device 0 has room for one layer and one micro-batch. So three micro-batches of 1 + 3 + 6 + 2
    # follow each other, 36 in all, and the even split fits nowhere.
    body |= {"count": 4, "activation": 3}
    fields = {"num_devices": 2, "num_microbatches": 3, "memory": {"capacity": [3, 9]}}
    instance = PipelineInstance.parse(fields | {"layers": {"body": body}})
    assert check_bound(instance, {"bound": 36}).proved_by == "layers"
    # With a weight gradient of 1 more they take 39, of which 38 are proved without a search.
    del body["backward"]
    body |= {"backward_input": 2, "backward_weight": 1}
    instance = PipelineInstance.parse(fields | {"layers": {"body": body}})
    assert check_bound(instance, {"bound": 38}).proved_by == "layers"
    with pytest.raises(InputError, match="leaves choices open"):
        check_bound(instance, {"bound": 39})
