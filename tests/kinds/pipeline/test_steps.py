"""Answers for steps: checked, never better than the optimum, and the same micro-batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import combinations

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.joint import lower_joint
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.kernels import compilation
from ppsolve.solver.kinds.pipeline.actions import Order, schedule_actions
from ppsolve.solver.kinds.pipeline.grammar import Action
from ppsolve.solver.kinds.pipeline.replicas import step
from tests.marks import first

FORWARD = [[1, 2, 6, 4], [1, 3, 2, 5]]
BACKWARD = [[2, 2, 7, 3], [4, 5, 1, 6]]
TWO = {
    "num_devices": 2,
    "num_microbatches": 4,
    "times": {"forward": FORWARD, "backward": BACKWARD},
    "memory": {"capacity": [2, 1], "activation": 1},
    "optimizer": 3,
    "replicas": {"count": 2, "assignment": "free"},
}


@pytest.fixture(autouse=True)
def _by_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compile nothing: answers are the same, and these are small."""
    monkeypatch.setenv(compilation.SWITCH, "never")
    monkeypatch.setitem(compilation._state, "compiled", False)
    yield


def pipeline(**changes):
    return PipelineInstance.parse(TWO | changes)


def numbers_in(answer) -> list[int]:
    return sorted(number for those in answer.assignment for number in those)


@cache
def best_of_all(optimizer: int | None = 3, sizes: tuple[int, ...] = (2,)) -> float:
    """Return the optimum over all assignments of four micro-batches to two replicas."""
    instance, values = pipeline(optimizer=optimizer), []
    for those in (those for size in sizes for those in combinations(range(4), size)):
        others = [number for number in range(4) if number not in those]
        fixed = {"count": 2, "members": [list(those), others], "counts": "any"}
        data = instance.model_dump(mode="json", exclude_none=True) | {"replicas": fixed}
        found = ppsolve.optimize(PipelineInstance.parse(data), time_limit=20)
        assert found.status == "OPTIMAL"
        values.append(found.value)
    return min(values)


@pytest.mark.slow
def test_an_exchanged_step_meets_the_optimum_over_all_assignments():
    instance = pipeline()
    answer = ppsolve.StepScheduler(instance).schedule(deadline=5.0, patience=0.5)
    assert answer.bound <= best_of_all() == answer.makespan
    assert numbers_in(answer) == [0, 1, 2, 3]


def test_optimize_exchanges_and_never_calls_more_than_its_bound_optimal():
    instance = pipeline()
    result = ppsolve.optimize(instance, time_limit=0.3, deterministic=True)
    assert result.bound_by == "exchange"
    assert result.bound <= result.value == best_of_all()
    assert (result.status == "OPTIMAL") == (result.value == result.bound)
    assert sorted(len(those) for those in result.assignment) == [2, 2]
    assert ppsolve.check(instance, result) == []


@pytest.mark.parametrize("counts", ["equal", "any"])
def test_orders_replayed_on_the_pipeline_take_as_long_as_the_answer_says(counts):
    instance = pipeline(replicas={"count": 2, "assignment": "free", "counts": counts})
    answer = ppsolve.StepScheduler(instance).schedule(deadline=1.0)
    problem = lower_joint(instance, tuple(map(tuple, answer.assignment)))
    rows = [device for replica in answer.orders for device in replica]
    orders = [
        Order.of(Action(int(text[0]), text[1], int(text[2:])) for text in row)
        for row in rows
    ]
    schedule = schedule_actions(problem, orders)
    assert check_schedule(problem, schedule) == []
    assert problem.scale.time(schedule.makespan) == answer.makespan


def test_memory_that_holds_no_microbatch_is_infeasible_with_the_reason():
    found = ppsolve.optimize(
        pipeline(memory={"capacity": 1, "activation": 2}), time_limit=5
    )
    assert found.status is Status.INFEASIBLE
    assert "F0.0 alone needs 2 of device 0, capacity 1" in found.reason


@pytest.mark.parametrize("free", [True, False])
def test_bounds_count_what_follows_all_microbatches(free):
    """Without that 30 and 19 % of the step stay open."""
    replicas = {"count": 2, "assignment": "free"} if free else None
    instance = pipeline(
        replicas=replicas, memory=None, optimizer=[0, 9], allreduce=[7, 0]
    )
    answer = ppsolve.StepScheduler(instance).schedule(deadline=5.0, patience=0.5)
    assert answer.gap < 0.05
    assert (answer.status is Status.OPTIMAL) is not free


def test_any_counts_are_never_worse_than_one_long_microbatch_needs():
    long = {"forward": [[20, 1, 1, 1], 1], "backward": [[20, 1, 1, 1], 1]}
    free = {"count": 2, "assignment": "free", "counts": "any"}
    instance = pipeline(times=long, replicas=free, optimizer=None)
    answer = ppsolve.StepScheduler(instance).schedule(deadline=2.0, patience=0.3)
    assert [0] in answer.assignment
    assert (answer.makespan, answer.status) == (42, "OPTIMAL")


def test_fixed_replicas_keep_their_microbatches_and_the_slowest_is_proved():
    fixed = {"count": 2, "members": [[3, 0], [1, 2]]}
    instance = pipeline(replicas=fixed, optimizer=None)
    answer = ppsolve.StepScheduler(instance).schedule(deadline=5.0, patience=0.3)
    assert [sorted(those) for those in answer.assignment] == [[0, 3], [1, 2]]
    best = ppsolve.optimize(instance, time_limit=20)
    assert (answer.makespan, answer.status) == (best.value, "OPTIMAL")


def test_times_of_a_step_stand_in_for_those_of_the_pipeline():
    scheduler = ppsolve.StepScheduler(pipeline(times={"forward": 1, "backward": 2}))
    answer = scheduler.schedule(
        times={"forward": np.array(FORWARD), "backward": BACKWARD}, deadline=1.0
    )
    kinds = answer.schedule.problem.kinds
    problem = answer.schedule.problem
    for name, table in (("F", FORWARD), ("B", BACKWARD)):
        ops = np.flatnonzero(problem.kind == kinds.index(name))
        given = np.array(table)[problem.stage[ops], problem.microbatch[ops]]
        assert (problem.duration[ops] == given * 10**6).all()


def test_lengths_of_a_step_change_times_and_memory():
    costs = {
        "lengths": [4, 4, 4, 4],
        "times": {"forward": {"per_token": 1}, "backward": {"per_token": 2}},
        "memory": {"capacity": [8, 4], "activation": {"per_token": 1}},
    }
    scheduler = ppsolve.StepScheduler(pipeline(**costs))
    answer = scheduler.schedule(lengths=[1, [2, 1], 3, 4], deadline=1.0)
    problem = answer.schedule.problem
    forward = problem.duration[problem.kind_mask("F") & (problem.stage == 0)]
    assert sorted(forward.tolist()) == [1_000_000, 3_000_000, 3_000_000, 4_000_000]
    assert {float(amount) for pool in problem.pools for amount in pool.amounts} == {
        0,
        1,
        3,
        4,
    }
    with pytest.raises(InputError, match="largest micro-batches"):
        scheduler.schedule(lengths=[1, 2, 3, 9], deadline=1.0)


@cache
def by_lengths() -> ppsolve.StepScheduler:
    costs = {"forward": {"per_token": 1}, "backward": {"per_token": 2}}
    return ppsolve.StepScheduler(pipeline(lengths=[4, 4, 4, 4], times=costs))


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"times": {"forward": [1, 2, 3]}}, "times.forward"),
        ({"times": {"forward": [[1, 2], [3]]}}, "times.forward"),
        ({"times": {"forward": -1}}, "times.forward"),
        ({"times": {"forward": float("nan")}}, "times.forward"),
        ({"times": {"backward_input": 1}}, "times.backward_input"),
        ({"times": {"forward": [[1, 2, 3, 4]]}}, "times.forward"),
        ({"times": [[1, 2, 3, 4]] * 2}, "times"),
        ({"lengths": [1, 2, 3]}, "lengths"),
        ({"lengths": [1, 2, 3, 0]}, "lengths"),
        ({"deadline": -1}, "deadline"),
        ({"deadline": float("nan")}, "deadline"),
        ({"patience": -1}, "patience"),
    ],
)
def test_numbers_that_do_not_belong_to_the_pipeline_are_refused_by_field(wrong, field):
    with pytest.raises(InputError) as refused:
        by_lengths().schedule(**wrong)
    assert refused.value.field == field


def test_lengths_that_nothing_depends_on_are_refused():
    with pytest.raises(
        InputError, match="no entry of the pipeline is a cost"
    ) as refused:
        ppsolve.StepScheduler(pipeline()).schedule(lengths=[4, 1, 1, 1])
    assert refused.value.field == "lengths"


def test_only_pipelines_have_steps():
    with pytest.raises(InputError, match="expected a pipeline, got"):
        ppsolve.StepScheduler(3)


def test_threads_get_the_answers_of_their_own_steps():
    scheduler = ppsolve.StepScheduler(pipeline())

    def longest(factor: int) -> tuple[float, float]:
        times = {
            "forward": factor * np.array(FORWARD),
            "backward": factor * np.array(BACKWARD),
        }
        answer = scheduler.schedule(times=times, deadline=2.0, patience=0.2)
        return answer.makespan, factor

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(longest, [1, 2, 5, 10]))
    # The optimizer step takes 3 whatever the factor.
    (first, _), *others = found
    assert [value for value, _ in others] == [
        (first - 3) * factor + 3 for _, factor in others
    ]


def test_a_deadline_of_nothing_still_gives_a_valid_answer():
    answer = ppsolve.StepScheduler(pipeline()).schedule(deadline=0.0)
    assert numbers_in(answer) == [0, 1, 2, 3]
    assert check_schedule(answer.schedule.problem, answer.schedule) == []


def test_a_slow_first_answer_takes_no_time_from_later_ones(monkeypatch):
    """The first one may compile; later ones keep free what the end of an answer takes."""
    real, slow = step.check_schedule, iter([0.4])
    monkeypatch.setattr(
        step, "check_schedule", lambda *given: time.sleep(next(slow, 0)) or real(*given)
    )
    assert ppsolve.StepScheduler(pipeline())._finishing < 0.4


def test_two_way_nics_are_refused():
    nic = {"mode": "nic", "bytes": 1, "bandwidth": 1}
    with pytest.raises(InputError) as refused:
        ppsolve.StepScheduler(pipeline(p2p=nic))
    assert refused.value.field == "p2p"


def test_collectives_are_refused():
    cut = {"forward": {"segments": 2, "allreduce": 3}}
    with pytest.raises(InputError) as refused:
        ppsolve.StepScheduler(
            PipelineInstance(
                num_devices=2,
                num_microbatches=2,
                times={"forward": [[1, 2]] * 2, "backward": [[2, 4]] * 2},
                collectives=cut,
            )
        )
    assert str(refused.value) == "collectives: expected none, as orders name whole ops"


def test_renumbered_forwards_run_in_order_on_the_last_stage():
    answer = ppsolve.StepScheduler(pipeline()).schedule(deadline=1.0)
    other = answer.renumbered()
    assert [sorted(those) for those in other.assignment] == [
        sorted(those) for those in answer.assignment
    ]
    for given, devices, those in zip(
        answer.orders, other.orders, other.assignment, strict=True
    ):
        assert [text for text in devices[1] if "F" in text] == ["1F0", "1F1"]
        back = [
            [text[:2] + str(those[int(text[2:])]) for text in row] for row in devices
        ]
        assert back == given


@pytest.mark.parametrize(
    ("counts", "sizes"), first(1, [("equal", (2,)), ("any", (1, 2))])
)
def test_few_assignments_are_gone_through(counts, sizes):
    replicas = {"count": 2, "assignment": "free", "counts": counts}
    instance = pipeline(replicas=replicas, optimizer=None)
    result = ppsolve.optimize(instance, time_limit=20)
    assert result.status == "OPTIMAL"
    assert result.value == best_of_all(None, sizes)
    assert ppsolve.check(instance, result) == []
