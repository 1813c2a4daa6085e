"""Requests for plans, and what must be true of every plan."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.studies.plan.request import PlanRequest, parse_request
from ppsolve.models.studies.plan.result import (
    Configuration,
    Plan,
    PlanRow,
    Rule,
    Verdict,
)
from ppsolve.solver.api.kinds import lower as lower_instance
from ppsolve.solver.studies.plan.api import plan
from ppsolve.solver.studies.plan.building import PipelineBuilder
from ppsolve.solver.studies.plan.space import enumerate_space
from tests.bruteforce import brute_force

NEARLY = 1 + 1e-12
PER_SECOND = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}
BEATEN = {Rule.BOUND, Rule.MEASURED, Rule.SOLVED, Rule.ALLOWED}


def document(
    layers: int = 8,
    nodes: int = 2,
    per_node: int = 4,
    is_split: bool = False,
    **search: Any,
) -> dict[str, Any]:
    """Return a request of equal layers with this search."""
    backward = (
        {"backward_input": 1, "backward_weight": 1} if is_split else {"backward": 2}
    )
    return {
        "model": {
            "microbatch_sizes": [1, 2],
            "layers": [{"count": layers, "forward": 1, **backward}],
        },
        "cluster": {
            "nodes": nodes,
            "devices_per_node": per_node,
            "within_node": {"bandwidth": 1},
            "between_nodes": {"bandwidth": 1},
        },
        "goodput": {"init_batch_size": 8},
        "search": search,
    }


def tiny_document(rng: random.Random) -> dict[str, Any]:
    """Return a request whose pipelines have at most a dozen ops."""
    is_split = rng.random() < 0.5

    def time() -> Any:
        return rng.choice([0, 1, 1, 2, 3, 0.5])

    parts = ("backward_input", "backward_weight") if is_split else ("backward",)
    layers = [
        {"forward": rng.choice([1, 2]), **{part: time() for part in parts}}
        | {
            "output_bytes": time(),
            "parameter_bytes": time(),
            "activation_bytes": time(),
        }
        | {"optimizer": rng.choice([0, 0, 1])}
        for _ in range(rng.randint(2, 4))
    ]
    link = {"latency": rng.choice([0, 0, 1, 0.5]), "bandwidth": rng.choice([1, 2])}
    cluster: dict[str, Any] = {"nodes": 2, "devices_per_node": 2, "within_node": link}
    cluster["between_nodes"] = {"latency": rng.choice([0, 3]), "bandwidth": 1}
    if rng.random() < 0.6:
        cluster["memory"] = rng.choice([4, 8, 12])
    goodput: dict[str, Any] = {"init_batch_size": 1}
    if rng.random() < 0.6:
        goodput["grad"] = {"sqr": rng.choice([0, 1]), "var": rng.choice([0, 4])}
    return {
        "time_unit": rng.choice(["ns", "us", "ms", "s"]),
        "model": {
            "microbatch_sizes": [1],
            "layers": layers,
            "state_factor": 1,
            "released_by_backward_weight": rng.choice([0, 0.5, 1]),
        },
        "cluster": cluster,
        "goodput": goodput,
        "search": {
            "pipeline_depths": [1, 2],
            "replicas": [1, 2],
            "microbatches": rng.choice([[1], [1, 2], [2]]),
            "backward": rng.choice([["split"], ["fused", "split"]])
            if is_split
            else ["fused"],
            "layer_splits": rng.choice([["balanced"], ["balanced", "even"]]),
        },
    }


def reduced_document(seed: int) -> dict[str, Any]:
    """Return a request with up to two dozen configurations of every kind."""
    rng = random.Random(seed)
    parts = rng.choice([("backward",), ("backward_input", "backward_weight")])

    def time() -> Any:
        return rng.choice(
            [rng.randint(1, 9), {"fixed": rng.randint(1, 5), "per_sample": 1.5}]
        )

    layers = [
        {
            "count": rng.randint(1, 2),
            "forward": time(),
            **{part: time() for part in parts},
        }
        | {"activation_bytes": rng.randint(0, 5), "output_bytes": rng.randint(0, 5)}
        | {"parameter_bytes": rng.randint(0, 5), "optimizer": rng.choice([0, 1.25])}
        for _ in range(3)
    ]
    cluster = {
        "nodes": 2,
        "devices_per_node": rng.choice([2, 3]),
        "within_node": {"latency": rng.choice([0, 1]), "bandwidth": 2},
        "between_nodes": {"latency": rng.choice([0, 4]), "bandwidth": 0.5},
        "memory": rng.choice([30, 50, 100]),
    }
    return {
        "model": {"microbatch_sizes": [1, 2], "layers": layers, "state_factor": 2},
        "cluster": cluster,
        "goodput": {
            "init_batch_size": 4,
            "grad": {"sqr": 0.1, "var": rng.choice([0, 1, 10])},
        },
        "search": {
            "pipeline_depths": [1, rng.choice([2, 3])],
            "replicas": [1, 2],
            "placements": ["linear", rng.choice(["interleaved", "vshape", "wave"])],
            "batch_sizes": rng.choice([[4], [4, 6]]),
            "layer_splits": rng.choice([["balanced"], ["balanced", "even"]]),
        },
    }


def check_plan(request: PlanRequest, found: Plan, gap: float = 0.0) -> None:
    rows = found.table
    space = enumerate_space(request)
    assert [row.rank for row in rows] == list(range(1, len(rows) + 1))
    assert {row.configuration for row in rows} == set(space.configurations)
    assert len(rows) == len(space.configurations) == found.counts.enumerated
    assert found.counts.not_formed == space.not_formed
    lost = [row.lost_by for row in rows]
    counts = found.counts
    assert counts.pruned_by_memory == lost.count(Rule.MEMORY)
    assert counts.schedules_memory == lost.count(Rule.SCHEDULES_MEMORY)
    assert counts.pruned_by_bound == lost.count(Rule.BOUND)
    assert min(counts.measured, counts.solved, counts.undecided) >= 0
    parts = (counts.pruned_by_memory, counts.schedules_memory, counts.pruned_by_bound)
    parts += (counts.measured, counts.solved)
    assert sum(parts) + counts.not_applicable + counts.undecided == counts.enumerated
    assert counts.undecided == [row.verdict for row in rows].count(Verdict.OPEN)
    assert counts.not_applicable == lost.count(Rule.NOT_APPLICABLE)
    assert (
        counts.solved <= counts.exact_runs <= counts.heuristic_runs <= counts.enumerated
    )
    for row in rows:
        check_row(request, found, row, gap)
    check_winner(request, found)
    assert Plan.model_validate_json(found.model_dump_json()) == found


def efficiency_of(request: PlanRequest, batch: int) -> float:
    """Return the published formula in exact numbers."""
    grad, scale = request.goodput.grad, Fraction(batch, request.goodput.init_batch_size)
    if grad is None:
        return 1.0
    sqr, var = Fraction(grad.sqr), Fraction(grad.var)
    gain = (var + sqr) / (var / scale + sqr) if var or sqr else Fraction(1)
    return float(gain / scale)


def check_row(request: PlanRequest, found: Plan, row: PlanRow, gap: float) -> None:
    chosen = row.configuration
    assert row.efficiency == pytest.approx(
        efficiency_of(request, chosen.batch_size), rel=1e-9
    )
    assert (
        (row.verdict is Verdict.WINNER)
        == (row.lost_by is None)
        == (row is found.winner)
    )
    assert row.reason
    if row.lost_by is Rule.MEMORY:
        assert row.verdict is Verdict.LOST
        assert (row.goodput, row.throughput, row.step_time) == (None,) * 3
        return
    assert row.goodput is not None
    assert row.throughput is not None
    assert 0 <= row.goodput.low <= row.goodput.high < float("inf")
    for edge in ("low", "high"):
        product = getattr(row.throughput, edge) * row.efficiency
        assert product == pytest.approx(getattr(row.goodput, edge), rel=1e-12)
    if row.step_time is None:
        assert row.goodput.low == 0
    else:
        samples = chosen.batch_size * PER_SECOND[request.time_unit]
        assert row.throughput.low == pytest.approx(
            samples / row.step_time.high, rel=1e-12
        )
        assert row.throughput.high == pytest.approx(
            samples / row.step_time.low, rel=1e-12
        )
        assert row.step_time.low <= row.step_time.high
    if row.layers_per_stage is not None:
        assert sum(row.layers_per_stage) == request.model.num_layers
        assert (
            len(row.layers_per_stage) == chosen.pipeline_depth * chosen.virtual_stages
        )
    if row.verdict is Verdict.LOST and row.lost_by in BEATEN:
        assert found.goodput is not None
        reached = found.goodput.low / (1 - gap) * NEARLY
        allowed = row.lost_by is Rule.ALLOWED
        assert allowed == (
            request.search.schedules is not None and row.schedule_by is not None
        )
        assert (row.goodput.low if allowed else row.goodput.high) <= reached
    if row.verdict is Verdict.OPEN:
        assert row.lost_by in {Rule.LIMIT, Rule.NO_SCHEDULE}


def check_winner(request: PlanRequest, found: Plan) -> None:
    if found.winner is None:
        nothing = (found.goodput, found.gap, found.instance, found.result)
        assert nothing == (None,) * 4
        assert found.status in {Status.INFEASIBLE, Status.UNKNOWN}
        infeasible = all(row.lost_by is Rule.MEMORY for row in found.table)
        assert (found.status is Status.INFEASIBLE) == infeasible
        return
    winner = found.winner
    assert found.goodput is not None
    assert found.instance is not None
    assert found.result is not None
    assert winner.goodput is not None
    assert winner.step_time is not None
    assert winner == found.table[0]
    assert ppsolve.check(found.instance, found.result) == []
    assert found.result.makespan == winner.step_time.high
    assert found.result.bound is not None
    if winner.configuration.layer_split != "searched":
        assert winner.step_time.low >= min(found.result.bound, winner.step_time.high)
    assert found.instance.num_microbatches == winner.configuration.microbatches
    assert found.instance.num_devices == winner.configuration.pipeline_depth
    assert found.goodput.low == winner.goodput.low
    lows = [row.goodput.low for row in found.table if row.goodput]
    assert found.goodput.low == max(lows)
    assert found.gap == pytest.approx(
        1 - found.goodput.low / found.goodput.high, abs=1e-12
    )
    assert (found.status is Status.OPTIMAL) == (found.goodput.high == found.goodput.low)
    if request.search.schedules is None:
        highs = [row.goodput.high for row in found.table if row.goodput]
        assert found.goodput.high == max(highs)


def splits(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Yield the boundaries of every split of layers into stages."""
    for inner in itertools.combinations(range(1, layers), stages - 1):
        yield (0, *inner, layers)


def planned(data: dict[str, Any], **options: Any) -> Plan:
    """Plan deterministically, and check all that a plan says against itself."""
    request = parse_request(data)
    found = plan(request, **{"deterministic": True, "time_limit": 20, **options})
    check_plan(request, found, options.get("gap", 0.0))
    return found


class Truth:
    """The best step time of every configuration, and of any split of its layers."""

    def __init__(self, request: PlanRequest) -> None:
        self.request, self.builder = request, PipelineBuilder(request)

    def step(self, chosen: Configuration, bounds: tuple[int, ...]) -> Fraction | None:
        problem = lower_instance(self.builder.pipeline(chosen, bounds).instance())
        ticks = brute_force(problem)
        return None if ticks is None else ticks * problem.scale.tick

    def goodput(self, chosen: Configuration, step: Fraction | None) -> float:
        if not step:
            return 0.0
        efficiency = efficiency_of(self.request, chosen.batch_size)
        per_second = PER_SECOND[self.request.time_unit]
        return chosen.batch_size * efficiency * per_second / float(step)

    def best_split(self, chosen: Configuration) -> float:
        stages = chosen.pipeline_depth * chosen.virtual_stages
        every = splits(self.request.model.num_layers, stages)
        return max(self.goodput(chosen, self.step(chosen, bounds)) for bounds in every)

    def own(self, chosen: Configuration) -> float:
        if chosen.layer_split == "searched":
            return self.best_split(chosen)
        bounds = (self.builder.split(chosen) or (None,))[0]
        return (
            0.0 if bounds is None else self.goodput(chosen, self.step(chosen, bounds))
        )
