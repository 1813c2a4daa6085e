"""Tiny pipelines with unequal micro-batches against the same ops written out as a graph."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.kinds.graph import GraphInstance, lower_graph
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.solver.api.registry import chosen_heuristics
from ppsolve.solver.bounds import lower_bounds
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.asking import solve_exactly
from tests.bruteforce import brute_force
from tests.marks import first
from tests.plain_model import plain_optimum, plain_range
from tests.running import run_heuristic

SPLIT = ("forward", "backward_input", "backward_weight")
KINDS = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W"}


def tiny(seed: int) -> dict[str, Any]:
    """Return the JSON of two stages and two or three micro-batches, some of them alike."""
    rng = np.random.default_rng(seed)
    microbatches = int(rng.integers(2, 4))
    split = microbatches == 2 and rng.random() < 0.4
    data: dict[str, Any] = {
        "num_devices": 2,
        "num_microbatches": microbatches,
        "times": {
            kind: [_row(rng, microbatches, 1, 4) for _ in range(2)]
            for kind in (SPLIT if split else ("forward", "backward"))
        },
    }
    if rng.random() < 0.8:
        data["memory"] = _memory(rng, microbatches)
    if microbatches == 2 and not split:
        mode = str(rng.choice(["send_queue", "send_queue", "link", "nic"]))
        data["p2p"] = {"mode": mode, "bytes": [_row(rng, 2, 1, 4)], "bandwidth": 1}
        data["p2p"]["latency"] = int(rng.integers(0, 2))
    return data


def _row(rng: Generator, size: int, low: int, high: int) -> list[int]:
    """Return numbers per micro-batch, all the same in every third row."""
    equal = rng.random() < 0.35
    return (
        [int(rng.integers(low, high))] * size
        if equal
        else rng.integers(low, high, size).tolist()
    )


def _memory(rng: Generator, microbatches: int) -> dict[str, Any]:
    stored = [_row(rng, microbatches, 1, 4) for _ in range(2)]
    more = [_row(rng, microbatches, 0, 3) for _ in range(2)]
    peak = [
        [a + b for a, b in zip(*rows, strict=True)]
        for rows in zip(stored, more, strict=True)
    ]
    memory = {
        "capacity": [int(max(row) + rng.integers(0, 4)) for row in peak],
        "activation": stored,
        "released_by_backward_weight": float(rng.choice([0, 0.5, 1])),
    }
    return memory | ({"forward_peak": peak} if rng.random() < 0.8 else {})


def as_graph(data: dict[str, Any]) -> dict[str, Any]:
    """Return the same ops, transfers and pools as a graph instance, written out by hand."""
    memory = data.get("memory")
    graph: dict[str, Any] = {
        "kind": "graph",
        "resources": [
            f"{kind}{device}" for kind in ("device", "out") for device in (0, 1)
        ],
        "ops": [],
        "precedences": [],
        "pools": [
            {"name": f"m{device}", "capacity": amount}
            for device, amount in enumerate(memory["capacity"] if memory else ())
        ],
    }
    for microbatch in range(data["num_microbatches"]):
        ops, edges = _chain(data, microbatch)
        graph["ops"] += ops
        graph["precedences"] += edges
    return graph


def _chain(
    data: dict[str, Any], i: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    ops = [
        {
            "id": f"{KINDS[kind]}{stage}.{i}",
            "duration": rows[stage][i],
            "resources": [f"device{stage}"],
            **_held(data, KINDS[kind], stage, i),
        }
        for kind, rows in data["times"].items()
        for stage in (0, 1)
    ]
    back = "I" if "backward_input" in data["times"] else "B"
    sequence = [f"F0.{i}", f"F1.{i}", f"{back}1.{i}", f"{back}0.{i}"]
    lag, p2p = {}, data.get("p2p")
    if p2p is not None:
        for name, sender in ((f"TF0.{i}", 0), (f"TB1.{i}", 1)):
            both = [f"out{sender}", f"out{1 - sender}"]
            used = both if p2p["mode"] == "nic" else both[:1]
            ops.append({"id": name, "duration": p2p["bytes"][0][i], "resources": used})
            lag[name] = p2p["latency"]
        sequence[3:3], sequence[1:1] = [f"TB1.{i}"], [f"TF0.{i}"]
    pairs = [*pairwise(sequence), (f"F0.{i}", f"{back}0.{i}")]
    pairs += [(f"I{stage}.{i}", f"W{stage}.{i}") for stage in (0, 1) if back == "I"]
    return ops, [{"before": a, "after": b, "lag": lag.get(a, 0)} for a, b in pairs]


def _held(data: dict[str, Any], kind: str, stage: int, i: int) -> dict[str, Any]:
    memory = data.get("memory")
    if memory is None:
        return {}
    stored = memory["activation"][stage][i]
    late = memory["released_by_backward_weight"]
    if kind == "F":
        peak = memory.get("forward_peak", memory["activation"])[stage][i]
        return {
            "acquire": {f"m{stage}": peak},
            "release_at_end": {f"m{stage}": peak - stored},
        }
    part = {"B": 1, "W": late, "I": 1 - late}[kind]
    return {"release_at_end": {f"m{stage}": stored * part}}


@cache
def optimum_of(seed: int) -> int | None:
    """Return the least makespan of the graph, None where its memory never suffices."""
    return brute_force(lower_graph(GraphInstance(**as_graph(tiny(seed)))))


@pytest.mark.parametrize("seed", first(12, range(300)))
def test_optimum_is_that_of_the_graph(seed: int) -> None:
    optimum = optimum_of(seed)
    problem = lower_pipeline(PipelineInstance(**tiny(seed)))
    assert brute_force(problem) == optimum
    implied = ImpliedOrder(problem)
    try:
        bounds = lower_bounds(implied)
    except MemoryInfeasible:
        assert optimum is None
        return
    answer = solve_exactly(
        implied, lower=0, incumbent=None, limits=SearchLimits(seconds=20)
    )
    if optimum is None:
        assert answer.infeasible
        return
    assert answer.schedule is not None
    assert check_schedule(problem, answer.schedule) == []
    assert (answer.schedule.value, answer.bound) == (optimum, optimum)
    assert all(bound.value <= optimum for bound in bounds)


@pytest.mark.parametrize("seed", first(2, range(300)))
def test_no_heuristic_is_below_the_optimum_or_breaks_a_rule(seed: int) -> None:
    instance = PipelineInstance(**tiny(seed))
    problem = lower_pipeline(instance)
    for heuristic in chosen_heuristics(instance, None):
        outcome = run_heuristic(heuristic.name, instance, problem)
        if outcome.status == HeuristicStatus.FEASIBLE:
            schedule, optimum = outcome.schedule, optimum_of(seed)
            assert schedule is not None and optimum is not None
            assert check_schedule(problem, schedule) == []
            assert schedule.value >= optimum


class TestPeaksOfAlikeMicrobatches:
    """Index order holds here, and with it every bound that knows about memory."""

    @staticmethod
    def alike(devices: int, microbatches: int, capacity: int) -> Problem:
        memory = {"capacity": capacity, "activation": 1, "forward_peak": 2}
        shape = {
            "num_devices": devices,
            "num_microbatches": microbatches,
            "memory": memory,
        }
        times = {"forward": 2, "backward": 1}
        return lower_pipeline(PipelineInstance.parse({**shape, "times": times}))

    @pytest.mark.parametrize("capacity", [2, 3, 4])
    def test_one_device_takes_its_work(self, capacity: int) -> None:
        """With any room: all F, or F and B in turn. F counts once, though it gives back too."""
        bounds = lower_bounds(ImpliedOrder(self.alike(1, 3, capacity)))
        assert max(bound.value for bound in bounds) == 9

    def test_one_at_a_time_where_a_second_peak_does_not_fit(self) -> None:
        """Each of three micro-batches goes there and back alone: 2 + 2 + 1 + 1."""
        problem = self.alike(2, 3, capacity=2)
        assert max(bound.value for bound in lower_bounds(ImpliedOrder(problem))) == 18
        assert plain_optimum(problem) == 18

    @pytest.mark.parametrize("seed", first(2, range(40)))
    def test_no_bound_is_above_the_optimum(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        stored, more = rng.integers(1, 3, 2), rng.integers(0, 4, 2)
        data = {
            "num_devices": 2,
            "num_microbatches": int(rng.integers(3, 6)),
            "times": {
                kind: rng.integers(1, 5, 2).tolist() for kind in ("forward", "backward")
            },
            "memory": {
                "capacity": (stored + more + rng.integers(0, 5, 2)).tolist(),
                "activation": stored.tolist(),
                "forward_peak": (stored + more).tolist(),
            },
            "objective": str(rng.choice(["makespan", "device_span"])),
        }
        problem = lower_pipeline(PipelineInstance.parse(data))
        known = plain_range(problem)
        implied = ImpliedOrder(problem)
        assert known is not None
        assert all(bound.value <= known[1] for bound in lower_bounds(implied))
        answer = solve_exactly(
            implied, lower=0, incumbent=None, limits=SearchLimits(seconds=20)
        )
        assert answer.schedule is not None
        assert known[0] <= answer.bound == answer.schedule.value <= known[1]
