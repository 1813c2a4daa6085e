from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.cycle import LoweredCycle, lower_cycle
from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.solver.bounds import best_bound, lower_bounds
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.heuristics.generic import list_serial, list_tail
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.asking import solve_exactly
from tests.bruteforce import brute_force
from tests.kinds.kfac.described_instances import FUSED, SPLIT, described_instance
from tests.marks import examples

MODULE = {
    "name": "m",
    "curvature_a": 1,
    "curvature_b": 1,
    "inverse_a": 1,
    "inverse_b": 1,
    "precondition": 1,
}


def instance(
    devices: int = 2, microbatches: int = 1, *rest: Any, **fields: Any
) -> KfacInstance:
    return described_instance(MODULE, devices, microbatches, *rest, **fields)


def names(problem: Problem) -> list[str]:
    return problem.op_names(range(problem.num_ops))


def before(problem: Problem, name: str) -> set[str]:
    op = names(problem).index(name)
    return set(problem.op_names(problem.before[problem.after == op]))


def resources(problem: Problem, name: str) -> list[str]:
    op = names(problem).index(name)
    return [problem.resource_names[r] for r in problem.resources_of(op)]


def optimum(problem: Problem) -> int | None:
    implied = ImpliedOrder(problem)
    lower = best_bound(lower_bounds(implied)).value
    answer = solve_exactly(
        implied,
        lower=lower,
        incumbent=None,
        limits=SearchLimits(seconds=None, deterministic=20),
    )
    if answer.schedule is None:
        return None
    assert check_schedule(problem, answer.schedule) == []
    assert answer.bound == answer.schedule.value
    return answer.schedule.value


def test_one_device_does_everything_in_a_row() -> None:
    one = instance(devices=1)
    assert optimum(lower_cycle(one)) == brute_force(lower_cycle(one)) == 3 + 5
    two = lower_cycle(instance(devices=1, refresh_interval=2))
    assert optimum(two) == brute_force(two) == 3 + 5 + 4


def test_last_backward_curvature_inversion_and_precondition_follow_the_pipeline() -> (
    None
):
    # Device 0: F 0-1, idle 1-4 (curvature A and its inversion), B 4-6, then CB, IB and PC.
    assert optimum(lower_cycle(instance())) == brute_force(lower_cycle(instance())) == 9


def test_a_cycle_of_two_iterations_uses_the_bubbles_of_the_second() -> None:
    # Each iteration is F0 F1 B1 B0 PC0 = 7; without max_age, CB0 and IB0 go into the second bubble.
    assert optimum(lower_cycle(instance(refresh_interval=2))) == 14
    # With max_age 0 they come before the first precondition.
    assert optimum(lower_cycle(instance(refresh_interval=2, max_age=0))) == 16
    # With max_age 1 the bubble of iteration 1 is early enough.
    assert optimum(lower_cycle(instance(refresh_interval=2, max_age=1))) == 14


def test_names_of_ops() -> None:
    problem = lower_cycle(instance(refresh_interval=2))
    assert names(problem) == [
        *("F0.0", "F1.0", "F0.0@1", "F1.0@1", "B0.0", "B1.0", "B0.0@1", "B1.0@1"),
        *("PC0:m@0", "PC0:m@1", "STEP0@0", "PC1:m@0", "PC1:m@1", "STEP1@0"),
        *("CA0.0:m", "CA1.0:m", "CB0.0:m", "CB1.0:m"),
        *("IA0:m", "IB0:m", "IA1:m", "IB1:m"),
    ]


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize(
    ("pipeline", "per_iteration"),
    [
        ({"times": FUSED}, {"F": 16, "B": 16}),
        ({"times": SPLIT}, {"F": 16, "I": 16, "W": 16}),
        (
            {
                "allreduce": 1,
                "optimizer": 1,
                "p2p": {"mode": "nic", "bytes": 1, "bandwidth": 1},
            },
            {"F": 16, "B": 16, "TF": 12, "TB": 12, "AR": 4, "OPT": 4},
        ),
        (
            {"placement": "bidirectional", "allreduce": 1, "optimizer": 1},
            {"F": 16, "B": 16, "AR": 4, "OPT": 8},
        ),
    ],
)
def test_counts_of_ops(
    iterations: int, pipeline: dict[str, Any], per_iteration: dict[str, int]
) -> None:
    modules = [
        {**MODULE, "stage": stage, "name": name, "sync_a": 1}
        for stage in range(4)
        for name in "ab"
    ]
    made = instance(4, 4, modules, pipeline, refresh_interval=iterations)
    cycle = LoweredCycle(made)
    problem = cycle.problem
    copies = 2 if pipeline.get("placement") == "bidirectional" else 1
    expected = {kind: count * iterations for kind, count in per_iteration.items()}
    expected |= {"PC": 8 * copies * iterations, "STEP": 4 * copies * (iterations - 1)}
    expected |= {"CA": 32, "CB": 32, "SA": 8, "IA": 8 * copies, "IB": 8 * copies}
    counts = Counter(problem.kinds[kind] for kind in problem.kind.tolist())
    assert counts == {kind: count for kind, count in expected.items() if count}
    assert len(set(names(problem))) == problem.num_ops
    assert problem.objective is Objective.MAKESPAN
    assert [problem.resource_names[r] for r in problem.span_resources] == [
        f"device {d}" for d in range(4)
    ]
    assert np.array_equal(problem.duration[cycle.op_of[0]], cycle.iteration.duration)


def test_an_iteration_follows_the_one_before_on_its_stage() -> None:
    problem = lower_cycle(
        instance(1, 2, pipeline={"allreduce": 1, "optimizer": 1}, refresh_interval=2)
    )
    assert before(problem, "PC0:m@0") == {"AR0"}
    assert before(problem, "OPT0") == {"AR0", "PC0:m@0"}
    assert before(problem, "STEP0@0") == {"OPT0"}
    assert before(problem, "F0.1@1") == {"STEP0@0"}
    assert before(problem, "AR0@1") == {"B0.0@1", "B0.1@1"}
    assert resources(problem, "STEP0@0") == []
    three = lower_cycle(instance(1, 1, refresh_interval=3))
    assert before(three, "STEP0@0") == {"PC0:m@0"}
    assert before(three, "STEP0@1") == {"PC0:m@1"}


def test_a_stage_without_modules_steps_after_its_gradients() -> None:
    module = {"stage": 0, **MODULE}
    problem = lower_cycle(
        instance(2, 2, [module], {"times": SPLIT}, refresh_interval=2)
    )
    assert before(problem, "STEP1@0") == {"W1.0", "W1.1"}
    assert before(problem, "STEP0@0") == {"PC0:m@0"}
    assert before(problem, "PC0:m@0") == {"W0.0", "W0.1"}


def test_curvature_follows_what_it_is_taken_of() -> None:
    fused = lower_cycle(instance(1, 2))
    assert before(fused, "CA0.1:m") == {"F0.1"}
    assert before(fused, "CB0.1:m") == {"B0.1"}
    assert before(fused, "IA0:m") == {"CA0.0:m", "CA0.1:m"}
    split = lower_cycle(instance(1, 2, pipeline={"times": SPLIT}))
    assert before(split, "CB0.1:m") == {"I0.1"}


def test_two_pipes_share_the_curvature_of_a_stage() -> None:
    module = {"stage": 0, **MODULE, "sync_a": 1}
    two = {"placement": "bidirectional", "allreduce": 1}
    problem = lower_cycle(instance(2, 2, [module], two, refresh_interval=2, max_age=1))
    assert resources(problem, "CA0.0:m") == ["device 0"]
    assert resources(problem, "CA0.1:m") == ["device 1"]
    assert before(problem, "SA0:m") == {"CA0.0:m", "CA0.1:m"}
    assert (
        resources(problem, "SA0:m") == resources(problem, "AR0") == ["comm 0", "comm 1"]
    )
    assert before(problem, "IA0:m@1") == {"SA0:m"}
    assert before(problem, "IB0:m@1") == {"CB0.0:m", "CB0.1:m"}
    assert resources(problem, "IB0:m@1") == ["device 1"]
    assert before(problem, "PC0:m@1@0") == {"AR0"}
    assert before(problem, "PC0:m@1@1") == {"AR0@1", "IA0:m@1", "IB0:m@1"}
    assert before(problem, "F0.1@1") == {"STEP0@1@0"}


def test_each_copy_waits_for_its_own_gradient_where_nothing_is_reduced() -> None:
    problem = lower_cycle(instance(2, 2, pipeline={"placement": "bidirectional"}))
    assert before(problem, "PC0:m@0@0") == {"B0.0"}
    assert before(problem, "PC0:m@1@0") == {"B0.1"}


def test_replicas_meet_in_a_sync() -> None:
    module = {"stage": 0, **MODULE, "sync_b": 3, "replicas": [1, 2]}
    problem = lower_cycle(instance(3, 1, [module]))
    assert resources(problem, "SB0:m") == ["comm 0", "comm 1", "comm 2"]
    assert resources(problem, "IB0:m") == ["device 0"]
    assert "SA0:m" not in names(problem)


def test_alike_microbatches_stay_interchangeable_in_each_iteration() -> None:
    problem = lower_cycle(instance(1, 3, refresh_interval=3))
    assert [family.shape for family in problem.families] == [(3, 4), (3, 2), (3, 2)]
    assert problem.op_names(problem.families[0][1]) == [
        "F0.1",
        "B0.1",
        "CA0.1:m",
        "CB0.1:m",
    ]
    assert problem.op_names(problem.families[2][1]) == ["F0.1@2", "B0.1@2"]


def test_pools_hold_inputs_and_errors_until_their_curvature() -> None:
    saved = [{"stage": 0, **MODULE, "input_bytes": 0.1, "error_bytes": 2}]
    memory = {
        "capacity": 10,
        "activation": 1,
        "static": 1,
        "released_by_backward_weight": 0.5,
    }
    made = instance(1, 1, saved, {"memory": memory, "times": SPLIT}, refresh_interval=2)
    problem = lower_cycle(made)
    (pool,) = problem.pools
    acquired = {
        problem.op_name(op): pool.amounts[amount]
        for op, amount in zip(pool.acquire_op, pool.acquire_amount, strict=True)
    }
    released = {
        problem.op_name(op): pool.amounts[amount]
        for op, amount in zip(pool.release_op, pool.release_amount, strict=True)
    }
    half = Fraction(1, 2)
    assert (pool.capacity, pool.initial) == (10, 1)
    assert acquired == {"F0.0": Fraction(11, 10), "I0.0": 2, "F0.0@1": 1}
    assert released == {
        "I0.0": half,
        "W0.0": half,
        "CA0.0:m": Fraction(1, 10),
        "CB0.0:m": 2,
        "I0.0@1": half,
        "W0.0@1": half,
    }


def test_saved_tensors_hold_forwards_up() -> None:
    # F0.1 needs 2: it waits for B0.0 and CA0.0, as each of them gives back 1 of the capacity 2.
    module = {"stage": 0, **MODULE, "input_bytes": 1}
    memory = {"capacity": 2, "activation": 1}
    free = lower_cycle(instance(2, 2, [module]))
    tight = lower_cycle(instance(2, 2, [module], {"memory": memory}))
    assert optimum(free) == brute_force(free)
    assert optimum(tight) == brute_force(tight)
    assert (optimum(free) or 0) < (optimum(tight) or 0)


def test_kfac_times_are_whole_ticks() -> None:
    problem = lower_cycle(instance(1, 1, [{"stage": 0, **MODULE, "curvature_a": 0.25}]))
    assert problem.scale.tick == Fraction(1, 4)
    assert problem.duration[names(problem).index("CA0.0:m")] == 1


def test_a_cycle_of_too_many_ops_is_refused() -> None:
    with pytest.raises(
        InputError, match="refresh_interval: expected at most 5000000 ops in all"
    ):
        lower_cycle(instance(8, 64, refresh_interval=10_000))
    # At most 3 ops of the pipeline, and 2 for each module and stage: 503 in each iteration.
    many = [{"stage": 0, **MODULE, "name": f"m{number}"} for number in range(249)]
    with pytest.raises(
        InputError, match="refresh_interval: expected at most 5000000 ops in all"
    ):
        lower_cycle(instance(1, 1, many, refresh_interval=10_000))


def test_times_without_a_common_tick_are_refused_or_rounded() -> None:
    made = instance(
        1, 1, [{"stage": 0, **MODULE, "inverse_a": 1e-15, "inverse_b": 1e3}]
    )
    with pytest.raises(InputError, match="common tick"):
        lower_cycle(made, exact=True)
    assert not lower_cycle(made).scale.is_exact


@st.composite
def tiny_cycles(draw: st.DrawFn) -> KfacInstance:
    number = st.integers(0, 3)
    devices = draw(st.integers(1, 2))
    microbatches = draw(st.integers(1, 2)) if devices == 1 else 1
    times = dict.fromkeys(draw(st.sampled_from([FUSED, SPLIT])), 0)
    times = {kind: draw(st.integers(1, 3)) for kind in times}
    fields = ("curvature_a", "curvature_b", "inverse_a", "inverse_b", "precondition")
    module = {
        "stage": draw(st.integers(0, devices - 1)),
        "name": "m",
        "sync_a": draw(st.integers(0, 1)),
        **{field: draw(number) for field in fields},
    }
    iterations = draw(st.integers(1, 2))
    age = draw(st.none() | st.integers(0, iterations - 1))
    extra = {} if age is None else {"max_age": age}
    return instance(
        devices,
        microbatches,
        [module],
        {"times": times},
        refresh_interval=iterations,
        **extra,
    )


@given(tiny_cycles())
@examples(34)
def test_optimum_is_that_of_exhaustive_search(made: KfacInstance) -> None:
    problem = lower_cycle(made)
    assert optimum(problem) == brute_force(problem)


@given(tiny_cycles())
@examples(34)
def test_list_schedules_are_valid(made: KfacInstance) -> None:
    problem = lower_cycle(made)
    for rule in (list_tail, list_serial):
        assert check_schedule(problem, rule(problem)) == []
