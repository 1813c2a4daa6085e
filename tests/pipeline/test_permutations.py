"""The heuristic ``permutations``: unequal micro-batches, never worse than under any pattern."""

from __future__ import annotations

import pytest

import ppsolve
from ppsolve.models.core.result import HeuristicStatus, Status
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Effort, Request
from ppsolve.solver.optimize.kinds import lower
from ppsolve.solver.optimize.registry import run_heuristic
from ppsolve.solver.pipeline.microbatch_orders import permutations
from tests.bruteforce import brute_force
from tests.unequal_cases import pipeline_of, read_case, recorded_of

TIMES = {"forward": [[1, 2, 3], 4], "backward": [5, [6, 7, 1]]}


def _pipeline(**changes):
    return PipelineInstance(**{"num_devices": 2, "num_microbatches": 3, "times": TIMES} | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"memory": {"capacity": [4, 3], "activation": [[1, 2, 3], [3, 1, 1]]}},
        {"memory": {"capacity": 5, "activation": [[1, 2, 3], 1], "forward_peak": [[2, 3, 4], 2]}},
        {"p2p": {"mode": "send_queue", "bytes": [[3, 1, 2]], "bandwidth": 1, "latency": 1}},
        {"optimizer": [9, 0]},
    ],
)
def test_the_optimum_of_tiny_pipelines_is_found(changes):
    instance = _pipeline(**changes)
    problem = lower(instance)
    outcome = run_heuristic("permutations", instance, problem)
    assert outcome.status is HeuristicStatus.FEASIBLE
    assert outcome.schedule.makespan == brute_force(problem)


def test_what_comes_before_all_microbatches_runs_first():
    cut = {"forward": {"segments": 2, "allreduce": 1}, "reduce_scatter": 1, "all_gather": 2}
    problem = lower(_pipeline(collectives=cut))
    found = permutations(Request(_pipeline(collectives=cut), problem)).schedule
    assert not check_schedule(problem, found)


@pytest.mark.parametrize("seconds", [None, 0.2])
def test_ops_that_collectives_cut_are_searched_too(seconds):
    cut = {"forward": {"segments": 2, "allreduce": 3}, "backward": {"segments": 2, "allreduce": 1}}
    instance = _pipeline(collectives=cut)
    problem = lower(instance)
    found = permutations(Request(instance, problem, effort=Effort(Clock(seconds)))).schedule
    assert not check_schedule(problem, found)
    best = ppsolve.optimize(instance, time_limit=20)
    assert best.status is Status.OPTIMAL
    assert best.value <= problem.scale.time(found.makespan) <= 1.2 * best.value


@pytest.mark.parametrize(
    "instance",
    [
        PipelineInstance(num_devices=2, num_microbatches=3, times={"forward": 1, "backward": 2}),
        _pipeline(
            num_microbatches=2, placement="bidirectional", times={"forward": 1, "backward": 2}
        ),
    ],
)
def test_others_are_told_what_it_needs(instance):
    outcome = run_heuristic("permutations", instance, lower(instance))
    assert outcome.status is HeuristicStatus.NOT_APPLICABLE
    assert outcome.reason.startswith("needs ")


@pytest.mark.parametrize(
    "name",
    ["p4_m8_sigma04_seed48", "p8_m16_sigma04_seed48_transfer", "p4_m16_sigma01_seed48_memory"],
)
def test_published_planners_are_beaten_in_counted_steps(name):
    case = read_case(name)
    instance = pipeline_of(case)
    problem = lower(instance)
    published = [
        record.makespan for record in recorded_of(case) if record.scheduler != "cyclic"
    ]  # whose transfers begin with the op that feeds them
    schedule = run_heuristic("permutations", instance, problem).schedule
    assert float(problem.scale.time(schedule.makespan)) < min(published)


def test_it_begins_with_the_best_schedule_so_far_and_tells_of_better_ones():
    instance = _pipeline()
    problem = lower(instance)
    known = run_heuristic("list-tail", instance, problem).schedule
    told = []
    effort = Effort(Clock(0.0), known=known, tell=told.append)
    schedule = permutations(Request(instance, problem, effort=effort)).schedule
    assert schedule.makespan <= known.makespan
    assert told
    assert told[0].problem is problem
