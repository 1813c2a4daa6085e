"""Times of recorded steps: instances of them, orders timed by them, and predictions beside them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.trace.table import COLUMNS, KINDS, Trace
from ppsolve.solver.formats.torch.runtime import (
    compare_in_turn,
    compare_run,
    measured_again,
    predictions_of,
    steps_of,
    timed_again,
)

Row = tuple[int, str, int, int, int, int]
"""Step, kind, stage (and device), micro-batch, start and end in nanoseconds."""


def trace(rows: Sequence[Row]) -> Trace:
    made = [
        (step, 0, stage, 0, KINDS.index(kind), batch, start, end, stage)
        for step, kind, stage, batch, start, end in rows
    ]
    columns = dict(zip(COLUMNS, zip(*made, strict=True), strict=True))
    return Trace.of(columns, unit="us", sources=("run",), format="table")


def step(number: int = 0, slower: int = 1) -> list[Row]:
    """Two stages, one micro-batch: F 10 and 20 us, B 30 and 40 us; each transfer takes 2 us."""
    ends = [("F", 0, 0, 10), ("F", 1, 12, 32), ("B", 1, 32, 72), ("B", 0, 74, 104)]
    return [
        (number, kind, stage, 0, slower * 1000 * start, slower * 1000 * end)
        for kind, stage, start, end in ends
    ]


def pipeline(**more: object) -> ppsolve.PipelineInstance:
    data: dict[str, object] = {
        "name": "two",
        "num_devices": 2,
        "num_microbatches": 1,
        "times": {"forward": 1, "backward": 2},
        "memory": {"capacity": 3, "activation": [1, 2]},
    }
    return ppsolve.PipelineInstance.parse(data | more)


def test_times_and_latency_are_those_of_the_steps() -> None:
    # The median of three steps; the slow one is a stall of all ops, which medians do not notice.
    run = trace([*step(0), *step(1, slower=9), *step(2)])
    found = measured_again(pipeline(), run)
    assert found.times.forward == (10, 20)
    assert found.times.backward == (30, 40)
    assert found.p2p.latency == 2
    assert found.memory == pipeline().memory
    assert ppsolve.simulate(found, "1f1b").makespan == 104


def test_a_device_held_after_an_op_is_part_of_the_op() -> None:
    # Alone on its device nothing waits for another one: 3 us between ops are no idle time.
    rows: list[Row] = [(0, "F", 0, 0, 0, 10_000), (0, "F", 0, 1, 13_000, 23_000)]
    rows += [(0, "B", 0, 0, 26_000, 46_000), (0, "B", 0, 1, 49_000, 69_000)]
    alone = pipeline(num_devices=1, num_microbatches=2, memory=None)
    found = measured_again(alone, trace(rows))
    assert found.times.forward == (13,)
    assert found.times.backward == (23,)
    step_row, replay, backward, forward = compare_run(
        ppsolve.simulate(found, "gpipe"), trace(rows)
    )
    assert (step_row.predicted, step_row.measured) == (72, 69)
    assert (replay.predicted, replay.measured) == (60, 69)
    assert (forward.predicted, forward.measured) == (13, 13)
    assert (backward.predicted, backward.measured) == (23, 23)


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("time_unit", {"time_unit": "ms"}),
        ("placement", {"placement": {"stage_to_device": [1, 0]}}),
        ("num_microbatches", {"num_microbatches": 2}),
        ("times", {"times": {"forward": 1, "backward_input": 1, "backward_weight": 1}}),
    ],
)
def test_steps_of_another_pipeline_are_refused(
    field: str, more: dict[str, object]
) -> None:
    with pytest.raises(InputError, match="as in the instance, the run has") as caught:
        measured_again(pipeline(**more), trace(step()))
    assert caught.value.field == field


def test_an_order_is_kept() -> None:
    # One stage runs F B F B in 1F1B; the order of the result has both forwards first.
    times = {"forward": 10, "backward": 20}
    before = pipeline(num_devices=1, num_microbatches=2, memory=None)
    again = timed_again(
        ppsolve.simulate(before, "gpipe"),
        pipeline(num_devices=1, num_microbatches=2, memory=None, times=times),
    )
    assert again.schedule is not None
    assert [(op.kind, op.microbatch, op.end) for op in again.schedule.ops] == [
        ("F", 0, 10),
        ("F", 1, 20),
        ("B", 0, 40),
        ("B", 1, 60),
    ]


def test_an_order_that_needs_more_memory_says_so() -> None:
    before = pipeline(num_devices=1, num_microbatches=2, memory=None)
    tight = pipeline(
        num_devices=1, num_microbatches=2, memory={"capacity": 1, "activation": 1}
    )
    again = timed_again(ppsolve.simulate(before, "gpipe"), tight)
    assert again.status == "infeasible"
    assert again.reason is not None and "memory" in again.reason


def test_schedules_run_in_turn_are_told_apart() -> None:
    run = trace([row for number in range(5) for row in step(number)])
    assert set(steps_of(run, 0, 2).step.tolist()) == {0, 2, 4}
    assert set(steps_of(run, 1, 2).step.tolist()) == {1, 3}
    with pytest.raises(
        InputError, match="expected steps of schedule 1 of 2, there is none"
    ):
        steps_of(trace(step()), 1, 2)


def test_each_step_predicts_with_its_own_durations() -> None:
    # 100 us of work and two transfers of 2 us; the second step is three times as slow. The latency
    # is that of the fastest transfers, half of a median of 4 and 12 us there and back.
    found = ppsolve.simulate(pipeline(), "1f1b")
    run = trace([*step(0), *step(1, slower=3)])
    assert predictions_of(found, run) == [108, 308]


def test_a_step_is_held_against_the_steps_around_it() -> None:
    found = ppsolve.simulate(pipeline(), "1f1b")
    beside = trace([*step(0), *step(2, slower=3)])
    one, two = step(1, slower=2), step(3, slower=3)
    rows = compare_in_turn(found, trace([*one, *two]), beside)
    assert [(row.predicted, row.measured) for row in rows] == [
        ((108 + 308) / 2, 208),
        (308, 312),
    ]
