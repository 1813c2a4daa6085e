"""Plans: nothing is pruned that could win, and every row says the truth."""

from __future__ import annotations

import copy
import itertools
import random
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import HeuristicStatus, Status
from ppsolve.models.documents.errors import InputError, NotApplicableError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.studies.plan.request import PlanRequest, parse_request
from ppsolve.models.studies.plan.result import Plan, Range, Rule, Verdict
from ppsolve.solver.heuristics.heuristic import Heuristic
from ppsolve.solver.kinds.kind import Kind
from ppsolve.solver.studies.plan.api import plan
from ppsolve.solver.studies.plan.building import PipelineBuilder
from ppsolve.solver.studies.plan.progress import PlanProgress
from tests.marks import first
from tests.studies.plan.cases import (
    NEARLY,
    Truth,
    planned,
    reduced_document,
    tiny_document,
)


def document(**parts: Any) -> dict[str, Any]:
    """Return a small request; `parts` replace or add whole parts."""
    base = {
        "model": {
            "microbatch_sizes": [1],
            "layers": [{"count": 4, "forward": 1, "backward": 2, "output_bytes": 1}],
        },
        "cluster": {
            "devices_per_node": 4,
            "within_node": {"latency": 0.5, "bandwidth": 4},
        },
        "goodput": {"init_batch_size": 4},
    }
    return base | parts


def test_a_plan_by_hand() -> None:
    layers = [
        {
            "count": 4,
            "forward": 1,
            "backward": 2,
            "output_bytes": 1,
            "parameter_bytes": 4,
        }
    ]
    data = document(search={"pipeline_depths": [1, 2], "layer_splits": ["balanced"]})
    data["model"]["layers"] = layers
    found = planned(data)
    assert found.status is Status.OPTIMAL
    winner, loser = found.table
    # One micro-batch on each of four devices: 4 x 3, then 6 steps of 0.5 + 4 bytes / 4.
    assert (winner.configuration.pipeline_depth, winner.configuration.replicas) == (
        1,
        4,
    )
    assert winner.step_time == Range(low=21, high=21)
    assert winner.goodput is not None
    assert winner.goodput.low == pytest.approx(4 / 21 * 1e6)
    assert winner.reason == "proved: no other configuration has a higher goodput"
    # Two devices: the second one starts at 2.75 and is busy for 12, then 0.75 + 4, then 3.
    assert (loser.verdict, loser.lost_by) == (Verdict.LOST, Rule.BOUND)
    assert loser.goodput is not None
    assert loser.goodput.high == pytest.approx(4 / 22.5 * 1e6)
    assert loser.layers_per_stage == (2, 2)


# Against the truth, found by trying every schedule


def check_against_truth(request: PlanRequest, found: Plan) -> None:
    truth = Truth(request)
    best = 0.0
    for row in found.table:
        own = truth.own(row.configuration)
        best = max(best, own)
        if row.lost_by is Rule.MEMORY:
            is_even = row.configuration.layer_split == "even"
            assert (own if is_even else truth.best_split(row.configuration)) == 0
            continue
        assert row.goodput is not None
        assert row.goodput.low <= own * NEARLY
        assert own <= row.goodput.high * NEARLY
        if "whatever the split" in row.reason:
            assert truth.best_split(row.configuration) <= row.goodput.high * NEARLY
    if best == 0:
        assert found.status is Status.INFEASIBLE
    else:
        assert found.status is Status.OPTIMAL
        assert found.goodput is not None
        assert found.goodput.low == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("seed", first(4, range(30)))
@pytest.mark.parametrize("split", ["searched", "balanced"])
def test_the_winner_is_the_best_of_all_schedules(split: str, seed: int) -> None:
    data = tiny_document(random.Random(seed))
    splits = data["search"]["layer_splits"]
    data["search"]["layer_splits"] = [
        split if each == "balanced" else each for each in splits
    ]
    check_against_truth(parse_request(data), planned(data))


def test_weight_gradients_run_side_by_side() -> None:
    layer = {"forward": 1, "backward_input": 1, "backward_weight": 1}
    data = document(
        model={"microbatch_sizes": [1], "layers": [{"count": 4, **layer}]},
        cluster={"devices_per_node": 4, "within_node": {"bandwidth": 1}},
        goodput={"init_batch_size": 1},
        search={"pipeline_depths": [1, 2, 4], "microbatches": [1], "replicas": [1]},
    )
    found = planned(data)
    assert found.winner is not None
    # Four forwards, four input gradients, and the last of four weight gradients.
    assert found.winner.configuration.pipeline_depth == 4
    assert found.winner.step_time == Range(low=9, high=9)


# Pruned against exhaustive


@cache
def best_plan(seed: int) -> Plan:
    return planned(reduced_document(seed), finalists=100)


SEEDS = (1, 3, 5, 7, 8, 11, 16, 34, 104)
"""Everything occurs: no winner, pruning by every rule, exact searches, every placement."""


@pytest.mark.slow
def test_the_examples_have_every_outcome() -> None:
    plans = [best_plan(seed) for seed in SEEDS]
    rules = {row.lost_by for found in plans for row in found.table}
    assert rules == {None, Rule.MEMORY, Rule.BOUND, Rule.MEASURED, Rule.SOLVED}
    placements = {row.configuration.placement for found in plans for row in found.table}
    assert placements == {"linear", "interleaved", "vshape", "wave"}
    assert {row.configuration.backward for found in plans for row in found.table} == {
        "fused",
        "split",
    }


@pytest.mark.parametrize("seed", first(2, SEEDS))
def test_pruned_and_exhaustive_plans_agree(seed: int) -> None:
    pruned, full = best_plan(seed), planned(reduced_document(seed), exhaustive=True)
    assert full.exhaustive
    assert pruned.status is full.status
    assert pruned.goodput == full.goodput
    if pruned.winner is not None and full.winner is not None:
        assert pruned.winner.configuration == full.winner.configuration
    known = {row.configuration: row for row in full.table}
    for row in pruned.table:
        other = known[row.configuration]
        # What a bound rules out first may not fit the memory either.
        assert row.lost_by is not Rule.MEMORY or other.lost_by is Rule.MEMORY
        if row.goodput and other.goodput:
            assert row.goodput.high * NEARLY >= other.goodput.low
            assert row.goodput.low <= other.goodput.high * NEARLY


@pytest.mark.parametrize("seed", first(1, [3, 34]))
@pytest.mark.parametrize("options", [{}, {"deterministic": False, "finalists": 0}])
def test_equal_plans_are_equal_but_for_the_clock(
    options: dict[str, Any], seed: int
) -> None:
    one, other = (planned(reduced_document(seed), **options) for _ in (1, 2))
    assert without_clock(one) == without_clock(other)


def without_clock(found: Plan) -> Plan:
    result = found.result and found.result.model_copy(
        update={"wall_seconds": 0, "steps": ()}
    )
    return found.model_copy(update={"wall_seconds": 0, "result": result})


# Options


UNEVEN = {
    "microbatch_sizes": [1],
    "layers": [
        {"forward": 1 + index % 3, "backward": 2 + index % 2, "output_bytes": 1}
        for index in range(6)
    ],
}


@pytest.mark.parametrize("seed", first(1, [16, 34, 104]))
def test_no_finalists_no_exact_search(seed: int) -> None:
    found, best = planned(reduced_document(seed), finalists=0), best_plan(seed)
    assert best.counts.exact_runs > found.counts.exact_runs == 0
    assert found.status is Status.FEASIBLE
    assert found.goodput is not None
    assert best.goodput is not None
    assert found.goodput.low <= best.goodput.low * NEARLY
    assert found.goodput.high * NEARLY >= best.goodput.high
    one = planned(reduced_document(seed), finalists=1)
    assert one.counts.exact_runs == 1


def test_no_time_still_finds_a_schedule() -> None:
    data = document(
        model=UNEVEN, search={"pipeline_depths": [2, 3, 4], "replicas": [1]}
    )
    found = planned(data, time_limit=0, deterministic=False)
    assert found.winner is not None
    assert found.counts.exact_runs == 0
    assert found.counts.heuristic_runs >= 1


@pytest.mark.parametrize("seed", first(1, [3, 8, 1, 16]))
@pytest.mark.parametrize("gap", [0.01, 0.2, 0.9])
def test_a_gap_leaves_no_more_than_itself(gap: float, seed: int) -> None:
    close, best = planned(reduced_document(seed), gap=gap), best_plan(seed)
    if best.goodput is None or close.goodput is None:
        assert best.goodput is close.goodput
        return
    assert close.goodput.low / (1 - gap) * NEARLY >= best.goodput.low
    assert close.goodput.high * NEARLY >= best.goodput.low
    for row in close.table:
        beyond = (
            row.goodput is not None and row.goodput.high > close.goodput.low * NEARLY
        )
        if beyond and row.verdict is Verdict.LOST:
            assert "within the gap" in row.reason


def test_only_the_schedules_of_the_request_count() -> None:
    search = {
        "pipeline_depths": [1, 2, 4],
        "schedules": ["1f1b"],
        "placements": ["linear", "vshape"],
    }
    found = planned(document(search=search))
    assert found.winner is not None
    assert found.instance is not None
    assert found.counts.exact_runs == 0
    by = {row.schedule_by for row in found.table}
    assert by <= {"1f1b", None}
    entry = ppsolve.simulate(found.instance, "1f1b")
    assert found.winner.step_time is not None
    assert entry.makespan == found.winner.step_time.high
    for row in found.table:
        if row.configuration.placement == "vshape" and row.lost_by is not Rule.BOUND:
            assert (row.verdict, row.lost_by) == (Verdict.LOST, Rule.NO_SCHEDULE)
            assert row.reason.startswith("no schedule: 1f1b: needs")


@pytest.mark.parametrize("seed", first(2, [9, 16, 13, 15]))
def test_the_best_of_the_allowed_schedules_wins(seed: int) -> None:
    names = ["1f1b", "interleaved-1f1b", "zb-h1"][seed % 2 :]
    data = reduced_document(seed)
    data["search"]["schedules"] = names
    builder, reached = PipelineBuilder(parse_request(data)), [0.0]
    found = planned(data)
    for row in found.table:
        bounds = (builder.split(row.configuration) or (None,))[0]
        steps = (
            []
            if bounds is None
            else steps_of(builder.pipeline(row.configuration, bounds).instance(), names)
        )
        samples = row.configuration.batch_size * (row.efficiency or 0) * 1e6
        reached.append(max((samples / step for step in steps), default=0.0))
        if row.goodput is not None:
            assert row.goodput.low <= reached[-1] * NEARLY
            assert row.goodput.high * NEARLY >= reached[-1]
    won = 0.0 if found.goodput is None else found.goodput.low
    assert won == pytest.approx(max(reached), rel=1e-12)


def steps_of(instance: PipelineInstance, names: list[str]) -> list[float]:
    steps = []
    for name in names:
        with suppress(NotApplicableError):
            entry = ppsolve.simulate(instance, name)
            if entry.status is HeuristicStatus.FEASIBLE and entry.makespan is not None:
                steps.append(entry.makespan)
    return steps


def test_schedules_that_do_not_apply_are_no_measured_losers() -> None:
    data = document(
        cluster={"devices_per_node": 4, "within_node": {"bandwidth": 1}},
        search={
            "placements": ["linear", "interleaved"],
            "schedules": ["interleaved-1f1b"],
        },
    )
    data["model"]["layers"] = [{"count": 4, "forward": 1, "backward": 2}]
    found = planned(data)
    assert found.winner is not None
    assert found.winner.configuration.placement == "interleaved"
    one_device = [row for row in found.table if row.configuration.pipeline_depth == 1]
    assert [row.lost_by for row in one_device] == [Rule.NOT_APPLICABLE]
    assert one_device[0].reason.startswith(
        "no schedule: interleaved-1f1b: needs at least 2 devices"
    )


def test_schedules_that_never_apply_leave_no_plan() -> None:
    found = planned(
        document(search={"pipeline_depths": [2, 4], "schedules": ["zb-h1"]})
    )
    assert found.status is Status.UNKNOWN
    assert {row.lost_by for row in found.table} == {Rule.NOT_APPLICABLE}
    assert all("zb-h1" in row.reason for row in found.table)


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"finalists": -1}, "finalists: expected a number >= 0, got -1"),
    ({"time_limit": -1}, "time_limit: expected a number of seconds >= 0, got -1"),
    (
        {"time_limit": float("nan")},
        "time_limit: expected a number of seconds >= 0, got nan",
    ),
    ({"gap": 1}, "gap: expected a share from 0 to below 1, got 1"),
    ({"gap": float("nan")}, "gap: expected a share from 0 to below 1, got nan"),
    ({"workers": 0}, "workers: expected 1 to 1024, got 0"),
    (
        {"workers": 2, "deterministic": True},
        "workers: expected 1 with deterministic runs, got 2",
    ),
    ({"seed": -1}, f"seed: expected 0 to {2**31 - 1}, got -1"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS)
def test_bad_options_are_named_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(parse_request(document()), **options)
    assert str(caught.value) == message


def test_unknown_schedules_are_named() -> None:
    request = parse_request(document(search={"schedules": ["1f1b", "1f1c"]}))
    with pytest.raises(InputError) as caught:
        plan(request)
    assert caught.value.field == "search.schedules[1]"
    assert caught.value.message == 'unknown heuristic "1f1c"; did you mean "1f1b"?'


# Interrupts


class Interrupter:
    """Raises an interrupt when it is called for the last time."""

    def __init__(self, calls: int) -> None:
        self.calls, self.told = calls, list[PlanProgress]()

    def __call__(self, progress: PlanProgress) -> None:
        self.told.append(progress)
        if len(self.told) == self.calls:
            raise KeyboardInterrupt


@pytest.mark.parametrize("calls", [1, 2, 3, 5, 8, 13])
def test_interrupts_return_what_is_known(calls: int) -> None:
    stop = Interrupter(calls)
    found = planned(reduced_document(16), on_progress=stop, exhaustive=True)
    assert found.interrupted
    assert len(stop.told) == calls
    assert all(0 <= told.examined <= told.enumerated for told in stop.told)
    assert (found.winner is None) == (stop.told[-1].best is None)


@pytest.mark.parametrize("search", [{}, {"schedules": ["1f1b", "gpipe"]}])
def test_interrupts_of_heuristics_end_the_plan(
    search: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = Kind.run_heuristic, list[str]()

    def interrupted(kind: Any, heuristic: Heuristic, *rest: Any, **named: Any) -> Any:
        seen.append(heuristic.name)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return real(kind, heuristic, *rest, **named)

    monkeypatch.setattr(Kind, "run_heuristic", interrupted)
    data = document(
        model=UNEVEN, search={"pipeline_depths": [2, 3, 4], "replicas": [1], **search}
    )
    found = planned(data, exhaustive=True)
    assert found.interrupted
    assert len(seen) == 2
    # Published orders that overfill memory are out before any of them is run.
    out_at_once = {Rule.ALLOWED} if search else set()
    assert {row.lost_by for row in found.table} <= {
        None,
        Rule.LIMIT,
        Rule.BOUND,
    } | out_at_once


# Numbers


def scaled(data: dict[str, Any], factor: float) -> dict[str, Any]:
    """Return a request with all times and latencies multiplied, transfers too."""
    data = copy.deepcopy(data)
    for layer in data["model"]["layers"]:
        for part in ("forward", "backward"):
            layer[part] *= factor
    for name in ("within_node", "between_nodes"):
        if name in data["cluster"]:
            data["cluster"][name]["latency"] *= factor
            data["cluster"][name]["bandwidth"] /= factor
    return data


@pytest.mark.parametrize("power", [-12, -9, 3, 9, 12])
def test_tiny_and_huge_times(power: int) -> None:
    data = document(model=UNEVEN, search={"pipeline_depths": [1, 2, 3]})
    usual, other = planned(data), planned(scaled(data, float(f"1e{power}")))
    assert usual.goodput is not None
    assert other.goodput is not None
    assert other.goodput.low * 10.0**power == pytest.approx(usual.goodput.low, rel=1e-6)
    chosen = [
        [row.configuration for row in found.table][:1] for found in (usual, other)
    ]
    assert chosen[0] == chosen[1]


def test_goodput_is_per_second_whatever_the_unit() -> None:
    goodputs = []
    for unit in ("s", "ms", "us", "ns"):
        found = planned(document(model=UNEVEN, time_unit=unit)).goodput
        assert found is not None
        goodputs.append(found.low)
    for slower, faster in itertools.pairwise(goodputs):
        assert faster == pytest.approx(slower * 1000, rel=1e-12)


def test_efficiency_never_grows_with_the_batch() -> None:
    search = {"pipeline_depths": [1], "batch_sizes": [4, 8, 16, 32, 64]}
    goodput = {"init_batch_size": 4, "grad": {"sqr": 0.01, "var": 0.5}}
    found = planned(document(goodput=goodput, search=search))
    pairs = sorted(
        (row.configuration.batch_size, row.efficiency or 0) for row in found.table
    )
    values = [value for _, value in pairs]
    assert values == sorted(values, reverse=True)
    assert values[0] == 1


def test_nothing_fits() -> None:
    data = document(search={"pipeline_depths": [1, 2, 4]})
    data["model"]["layers"][0] |= {"activation_bytes": 3, "parameter_bytes": 1}
    data["cluster"]["memory"] = 10.9
    found = planned(data)
    assert found.status is Status.INFEASIBLE
    assert found.counts.pruned_by_memory == found.counts.enumerated
    assert all(row.reason.startswith("proved: ") for row in found.table)
    data["cluster"]["memory"] = 11
    fits = planned(data)
    assert fits.winner is not None
    assert fits.winner.configuration.pipeline_depth == 4


def test_equals_that_cannot_be_scheduled_do_not_stand_against_the_winner() -> None:
    search = {"pipeline_depths": [1], "replicas": [1], "microbatches": [2_000_000, 4]}
    found = planned(document(search=search))
    assert found.status is Status.OPTIMAL
    assert found.winner is not None
    assert found.winner.configuration.microbatches == 4
    assert found.winner.reason == "proved: no other configuration has a higher goodput"


def test_what_does_not_fit_is_proved_so_however_large_it_is() -> None:
    data = document(
        search={"pipeline_depths": [2], "replicas": [1], "microbatches": [200_000]}
    )
    data["model"]["layers"] = [
        {"count": 3, "forward": 1, "backward": 2, "activation_bytes": 6}
    ]
    data["cluster"]["memory"] = 10
    assert planned(data).status is Status.INFEASIBLE


ODD: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"microbatches": [4, 2_000_000]}),
    ({"parameter_bytes": 1e15}, {"pipeline_depths": [2, 4], "replicas": [1, 2]}),
    ({"output_bytes": 1e15}, {"pipeline_depths": [1, 4]}),
    (
        {"forward": 1.2345678, "parameter_bytes": 12345678901},
        {"pipeline_depths": [1, 4]},
    ),
]
"""Too many ops; an all-reduce, a transfer out of range; times without a common tick."""


@pytest.mark.parametrize(("layer", "search"), ODD)
def test_one_odd_configuration_does_not_end_the_plan(
    layer: dict[str, Any], search: dict[str, Any]
) -> None:
    link = {"bandwidth": 0.1}
    data = document(search=search, cluster={"devices_per_node": 4, "within_node": link})
    data["model"]["layers"][0] |= layer
    found = planned(data)
    assert found.winner is not None
    odd = [row for row in found.table if row.step_time is None]
    assert odd
    for row in odd:
        assert row.lost_by in {Rule.NO_SCHEDULE, Rule.BOUND}
