"""Unequal micro-batches in other orders, on hand-made pipelines and published ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.result import HeuristicStatus, Status
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import kind_of, lower
from ppsolve.solver.board import Board
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Effort, HeuristicOutcome, Request
from ppsolve.solver.kinds.pipeline.microbatch_orders import (
    PATTERNS,
    cluster_orders,
    clusters_of,
    search_orders,
    sizes_of,
    under_patterns,
    work_of,
)
from tests.bruteforce import brute_force
from tests.running import run_heuristic
from tests.unequal_cases import pipeline_of, read_case, recorded_of

NAMES = ("descending", "ascending", "clusters")
LENGTHS = [[3, 4], 6, [1, 1, 1], 5]


def pipeline(**fields: Any) -> PipelineInstance:
    """Return 2 devices that take 5, 1, 4 and 2 for forwards, twice that for backwards."""
    times = {"forward": [[5, 1, 4, 2]] * 2, "backward": [[10, 2, 8, 4]] * 2}
    whole = {"num_devices": 2, "num_microbatches": 4, "times": times}
    return PipelineInstance(**{**whole, **fields})


def run(name: str, instance: PipelineInstance) -> HeuristicOutcome:
    return run_heuristic(name, instance, lower(instance))


def test_work_is_that_of_all_stages_without_transfers() -> None:
    instance = pipeline(
        p2p={"mode": "send_queue", "bytes": [[9, 9, 9, 1]], "bandwidth": 1}
    )
    assert work_of(lower(instance)).tolist() == [30, 6, 24, 12]


def test_size_is_the_sum_of_squares_of_lengths_where_there_are_lengths() -> None:
    instance = pipeline(lengths=LENGTHS)
    assert sizes_of(instance, lower(instance)).tolist() == [25, 36, 3, 25]


@pytest.mark.parametrize(
    ("name", "lengths", "order"),
    [
        ("descending", None, [0, 2, 3, 1]),
        ("ascending", None, [1, 3, 2, 0]),
        ("descending", LENGTHS, [1, 0, 3, 2]),
        ("ascending", LENGTHS, [2, 0, 3, 1]),
    ],
)
def test_first_forwards_go_by_size(name: str, lengths: Any, order: list[int]) -> None:
    """The first device runs forwards by size; micro-batches of one size go by index."""
    instance = pipeline(lengths=lengths)
    outcome = run(name, instance)
    assert outcome.orders is not None
    forwards = [action for action in outcome.orders[0] if "F" in action]
    assert forwards == [f"0F{i}" for i in order]


@pytest.mark.parametrize("name", NAMES)
def test_the_best_pattern_is_named_in_the_entry(name: str) -> None:
    instance = pipeline()
    problem = lower(instance)
    entry = kind_of(instance).entry_of(
        instance, problem, run_heuristic(name, instance, problem)
    )
    assert entry.pattern in {heuristic.name for heuristic in PATTERNS}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "fields",
    [
        {"times": {"forward": [1, 2], "backward": 3}},
        {"times": {"forward": [[1] * 4, 2], "backward": 3}},
    ],
)
def test_equal_micro_batches_have_no_order(name: str, fields: dict[str, Any]) -> None:
    outcome = run(name, pipeline(**fields))
    assert outcome.status is HeuristicStatus.NOT_APPLICABLE
    assert outcome.reason == "needs unequal micro-batches that are not sliced"


@pytest.mark.parametrize(
    "fields",
    [
        {"memory": {"capacity": 100, "activation": [[1, 2, 3, 4], 1]}},
        {"p2p": {"mode": "link", "bytes": [[1, 2, 3, 4]], "bandwidth": 1}},
    ],
)
def test_memory_and_transfers_make_them_unequal_too(fields: dict[str, Any]) -> None:
    equal = {"forward": 1, "backward": 2}
    assert (
        run("ascending", pipeline(times=equal, **fields)).status
        is HeuristicStatus.FEASIBLE
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_pattern_that_fits_is_kept_before_a_shorter_one_that_does_not(
    name: str,
) -> None:
    """Room for two activations: 1F1B fits on both devices in any order, GPipe in none."""
    outcome = run(name, pipeline(memory={"capacity": 2, "activation": 1}))
    assert outcome.status is HeuristicStatus.FEASIBLE
    outcome = run(name, pipeline(memory={"capacity": 0.5, "activation": 1}))
    assert outcome.status is HeuristicStatus.INFEASIBLE
    assert (outcome.reason or "").startswith("memory:")


@pytest.mark.parametrize("name", NAMES)
def test_both_pipes_of_a_bidirectional_pipeline_keep_their_micro_batches(
    name: str,
) -> None:
    outcome = run(name, pipeline(placement="bidirectional"))
    assert outcome.status is HeuristicStatus.NOT_APPLICABLE


@pytest.mark.parametrize("name", NAMES)
def test_collectives_are_added_to_the_best_order(name: str) -> None:
    outcome = run(name, pipeline(collectives={"reduce_scatter": 3}))
    assert outcome.status is HeuristicStatus.FEASIBLE
    assert outcome.pattern is not None


def test_no_pattern_is_refused() -> None:
    instance = pipeline()
    looped = [each for each in PATTERNS if each.name == "interleaved-1f1b"]
    with pytest.raises(
        NotApplicableError, match="needs a published schedule that applies"
    ):
        under_patterns(Request(instance, lower(instance)), looped, [np.arange(4)])


def test_time_that_is_over_ends_the_search_with_the_first_order() -> None:
    """One order is tried whatever the time, under every pattern; then the best so far is kept."""
    instance = pipeline()
    problem = lower(instance)
    orders = [np.array([3, 2, 1, 0]), np.array([1, 0, 2, 3])]
    short = Request(instance, problem, effort=Effort(Clock(0.0)))
    first, both = (
        under_patterns(request, PATTERNS, given).schedule.makespan
        for request, given in ((short, orders), (Request(instance, problem), orders))
    )
    alone = under_patterns(
        Request(instance, problem), PATTERNS, orders[:1]
    ).schedule.makespan
    assert (first, alone, both) == (48, 48, 45)


def test_clusters_are_of_like_values() -> None:
    assert clusters_of(np.array([9, 1, 8, 2, 50]), 3).tolist() == [1, 0, 1, 0, 2]
    assert len(set(clusters_of(np.array([7, 7, 7]), 3).tolist())) == 1


@pytest.mark.parametrize(("count", "expected"), [(8, 25), (20, 25), (21, 7), (3, 7)])
def test_every_order_of_the_clusters_and_the_given_one(
    count: int, expected: int
) -> None:
    """4 clusters have 24 orders, 3 have 6: more than 20 micro-batches have 3, 3 have no more."""
    work = np.arange(count, dtype=np.int64) ** 2
    orders = cluster_orders(work)
    assert len(orders) == expected
    assert orders[0].tolist() == list(range(count))
    assert all(sorted(order.tolist()) == list(range(count)) for order in orders)
    assert len({tuple(order.tolist()) for order in orders[1:]}) == expected - 1


def test_clusters_stay_together() -> None:
    work = np.array([1, 100, 2, 1000, 101, 10000, 1001, 10001])
    cluster = clusters_of(work, 4)
    for order in cluster_orders(work)[1:]:
        changes = (np.diff(cluster[order]) != 0).sum()
        assert changes == 3


TIMES = {"forward": [[1, 2, 3], 4], "backward": [5, [6, 7, 1]]}


def _pipeline(**changes):
    return PipelineInstance(
        **{"num_devices": 2, "num_microbatches": 3, "times": TIMES} | changes
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"memory": {"capacity": [4, 3], "activation": [[1, 2, 3], [3, 1, 1]]}},
        {
            "memory": {
                "capacity": 5,
                "activation": [[1, 2, 3], 1],
                "forward_peak": [[2, 3, 4], 2],
            }
        },
        {
            "p2p": {
                "mode": "send_queue",
                "bytes": [[3, 1, 2]],
                "bandwidth": 1,
                "latency": 1,
            }
        },
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
    cut = {
        "forward": {"segments": 2, "allreduce": 1},
        "reduce_scatter": 1,
        "all_gather": 2,
    }
    problem = lower(_pipeline(collectives=cut))
    found = search_orders(Request(_pipeline(collectives=cut), problem)).schedule
    assert not check_schedule(problem, found)


@pytest.mark.parametrize("seconds", [None, 0.2])
def test_ops_that_collectives_cut_are_searched_too(seconds):
    cut = {
        "forward": {"segments": 2, "allreduce": 3},
        "backward": {"segments": 2, "allreduce": 1},
    }
    instance = _pipeline(collectives=cut)
    problem = lower(instance)
    found = search_orders(
        Request(instance, problem, effort=Effort(Clock(seconds)))
    ).schedule
    assert not check_schedule(problem, found)
    best = ppsolve.optimize(instance, time_limit=20)
    assert best.status is Status.OPTIMAL
    assert best.value <= problem.scale.time(found.makespan) <= 1.2 * best.value


@pytest.mark.parametrize(
    "instance",
    [
        PipelineInstance(
            num_devices=2, num_microbatches=3, times={"forward": 1, "backward": 2}
        ),
        _pipeline(
            num_microbatches=2,
            placement="bidirectional",
            times={"forward": 1, "backward": 2},
        ),
    ],
)
def test_others_are_told_what_it_needs(instance):
    outcome = run_heuristic("permutations", instance, lower(instance))
    assert outcome.status is HeuristicStatus.NOT_APPLICABLE
    assert outcome.reason.startswith("needs ")


@pytest.mark.parametrize(
    "name",
    [
        "p4_m8_sigma04_seed48",
        "p8_m16_sigma04_seed48_transfer",
        "p4_m16_sigma01_seed48_memory",
    ],
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
    board = Board.beginning(known)
    board.subscribe(lambda *_: told.append(board.schedule))
    effort = Effort(Clock(0.0), board=board)
    schedule = search_orders(Request(instance, problem, effort=effort)).schedule
    assert schedule.makespan <= known.makespan
    assert all(found.problem is problem for found in told)
    assert board.value <= known.makespan
