"""Quick answers against the heuristics and optima that a whole run finds."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.solver.kinds.pipeline.published import PUBLISHED
from ppsolve.solver.kinds.pipeline.quick import _shape
from ppsolve.solver.kinds.pipeline.quick_figures import figures_of
from tests.marks import first

FIXED = {one.name for one in PUBLISHED if one.orders is not None}


def drawn(seed: int) -> dict[str, Any]:
    """Return a small pipeline, in one of three placements, most with memory."""
    rng = random.Random(seed)
    devices, placement = (
        rng.choice([2, 3, 4]),
        rng.choice(["linear", "interleaved", "vshape"]),
    )
    stages = devices * (1 if placement == "linear" else 2)

    def times() -> list[float]:
        return [digits(rng.uniform(1, 20)) for _ in range(stages)]

    # Whole numbers, decimals with and without rounding of doubles, and no common tick at all.
    digits = rng.choice(
        [
            round,
            lambda time: round(time, 2),
            lambda time: round(time) * 0.1,
            lambda time: time,
        ]
    )

    halves = (
        ("backward_input", "backward_weight") if rng.random() < 0.7 else ("backward",)
    )
    memory = {
        "capacity": [rng.choice([1, 1.5, 2, 3]) * stages for _ in range(devices)],
        "activation": [rng.choice([1, 2]) for _ in range(stages)],
        "released_by_backward_weight": rng.choice([0, 0.25, 1]),
        "static": rng.choice([0, 1]),
    }
    return {
        "num_devices": devices,
        "num_microbatches": rng.choice([2, 3, 4, 6]),
        "placement": placement,
        "times": {"forward": times()} | {half: times() for half in halves},
        "p2p": {"latency": rng.choice([0, 1, 5])},
        "memory": memory if rng.random() < 0.7 else None,
    }


@pytest.mark.parametrize("seed", first(4, range(150)))
def test_a_quick_answer_is_the_best_published_schedule_and_a_bound(seed):
    document = drawn(seed)
    pipeline = ppsolve.PipelineInstance(**document)
    found, known = (
        ppsolve.quick(pipeline),
        ppsolve.optimize(pipeline, time_limit=2, workers=1),
    )
    if known.value is None:
        assert found.value is None
        return
    published = {
        entry.name: entry.value
        for entry in known.heuristics
        if entry.name in FIXED and entry.status == "feasible"
    }
    assert {n: v for n, v in found.published.items() if v is not None} == published
    assert found.bound <= known.value
    assert known.bound <= (np.inf if found.value is None else found.value)
    assert (np.inf if found.value is None else found.value) <= min(
        published.values(), default=np.inf
    )
    if found.by in FIXED:
        assert found.value == published[found.by]
    peaks = [entry.peak_memory for entry in known.heuristics if entry.name == found.by]
    if pipeline.memory is None or found.value is None:
        assert found.memory is None
    elif found.by in FIXED:
        assert list(found.memory) == pytest.approx(list(peaks[0].values()), rel=1e-12)
    assert found.bound <= (np.inf if found.value is None else found.value)
    twice = {name: [row, row] for name, row in document["times"].items()}
    columns = ppsolve.quick(pipeline, **twice)
    assert columns.value.tolist() == pytest.approx(
        [found.value or np.nan] * 2, rel=0, nan_ok=True
    )
    assert columns.bound.tolist() == [found.bound] * 2
    assert columns.by.tolist() == [found.by] * 2
    assert columns.bound_by.tolist() == [found.bound_by] * 2


def pipeline(**changes: Any) -> ppsolve.PipelineInstance:
    """Return four stages with memory for four activations."""
    fields = {
        "num_devices": 4,
        "num_microbatches": 8,
        "times": {
            "forward": [100, 90, 90, 140],
            "backward_input": 95,
            "backward_weight": 60,
        },
        "p2p": {"latency": 5},
        "memory": {"capacity": 4, "activation": 1},
    }
    return ppsolve.PipelineInstance(**(fields | changes))


def test_arrays_stand_in_for_the_entries_of_each_column():
    latency, capacity = np.array([0, 5, 50]), np.array([4, 4, 8])
    forward = np.array([[100, 90, 90, 140], [50, 50, 50, 50], [100, 90, 90, 140]])
    found = ppsolve.quick(
        pipeline(), latency=latency, capacity=capacity, forward=forward
    )
    for column in range(3):
        alone = pipeline(
            times={
                "forward": forward[column].tolist(),
                "backward_input": 95,
                "backward_weight": 60,
            },
            p2p={"latency": int(latency[column])},
            memory={"capacity": int(capacity[column]), "activation": 1},
        )
        one = ppsolve.quick(alone)
        assert (found.value[column], found.bound[column]) == (one.value, one.bound)
        assert (found.by[column], found.bound_by[column]) == (one.by, one.bound_by)


def test_values_are_plain_numbers():
    found = ppsolve.quick(
        pipeline(times={"forward": 10.1, "backward": 20.2}, p2p={"latency": 0.1})
    )
    assert (repr(found.value), repr(found.bound)) == ("334.9", "333.9")


def test_values_of_arrays_are_those_of_each_pipeline_and_plain():
    forward = np.round(np.random.default_rng(1).uniform(8, 12, (40, 4)), 1)
    times = {
        "forward": forward,
        "backward_input": forward * 1.1,
        "backward_weight": forward * 0.9,
    }
    options = {"p2p": {"latency": 0.3}, "memory": {"capacity": "1p", "activation": 1.1}}
    base = pipeline(times=dict.fromkeys(times, 1), **options)
    found = ppsolve.quick(base, **times)
    for column, value in enumerate(found.value.tolist()):
        own = {name: table[column].tolist() for name, table in times.items()}
        alone = ppsolve.quick(pipeline(times=own, **options))
        assert (value, found.bound[column]) == (alone.value, alone.bound)
        assert len(repr(value)) <= len("123.45")


def test_times_of_many_digits_keep_them_in_arrays():
    for time, expected in (
        (1.00000000006, 32.00000000192),
        (12345678901, 395061724832),
    ):
        base = pipeline(
            num_devices=1, num_microbatches=16, times={"forward": 1, "backward": 1}
        )
        found = ppsolve.quick(base, forward=[[time]], backward=[[time]])
        assert (found.value.tolist(), found.bound.tolist()) == ([expected], [expected])


@pytest.mark.parametrize(
    "halves", [("backward",), ("backward_input", "backward_weight")]
)
def test_orders_that_a_number_of_microbatches_does_not_have_are_left_out(halves):
    """Interleaved 1F1B has no groups for 5 micro-batches on 2 devices; looped BFS runs them."""
    times = {"forward": 1} | dict.fromkeys(halves, 2)
    odd = pipeline(
        num_devices=2,
        num_microbatches=5,
        placement="interleaved",
        times=times,
        memory=None,
    )
    found, known = ppsolve.quick(odd), ppsolve.optimize(odd, time_limit=0)
    looped = next(
        entry.value for entry in known.heuristics if entry.name == "looped-bfs"
    )
    assert found.bound <= known.value <= found.value <= looped


def test_an_activation_of_millions_of_memories_does_not_wrap_around():
    """Cut into 2^40 parts of the memory, 9.3e6 memories are more than 64 bits hold."""
    small = {"capacity": 1, "activation": 9.3e6}
    assert ppsolve.quick(pipeline(memory=small)).value is None
    columns = ppsolve.quick(
        pipeline(), activation=[9.3e6, 1, 1e15], capacity=[1, 4, 1e-3]
    )
    assert np.isnan(columns.value).tolist() == [True, False, True]


def test_a_bound_is_a_whole_tick_and_the_same_in_arrays():
    """Stage 0 holds half of its memory for 31 three times: 46.5, and whole times end at 47."""
    backward = [4, 4, 4, 3]
    held = pipeline(
        num_microbatches=3,
        times={"forward": 4, "backward": backward},
        p2p={"latency": 0},
        memory={"capacity": 2, "activation": 1},
    )
    found, columns = (
        ppsolve.quick(held),
        ppsolve.quick(held, backward=[backward], forward=[4]),
    )
    assert (found.bound, found.bound_by) == (47, "memory-time")
    assert (columns.bound[0], columns.bound_by[0]) == (47, "memory-time")


def test_times_without_a_common_tick_are_rounded_down_for_bounds_and_up_for_values():
    """Four forwards of 0.33333333333 and backwards of 0.70710678118 on one device, in ten digits.

    4 x (0.3333333333 + 0.7071067811) and 4 x (0.3333333334 + 0.7071067812).
    """
    endless = pipeline(
        num_devices=1,
        num_microbatches=4,
        times={"forward": 1 / 3, "backward": 0.5**0.5},
        memory=None,
    )
    found = ppsolve.quick(endless)
    assert (found.bound, found.value) == (4.1617604576, 4.1617604584)
    columns = ppsolve.quick(endless, forward=[1 / 3] * 2, backward=[0.5**0.5] * 2)
    assert columns.bound.tolist() == [found.bound] * 2
    assert columns.value.tolist() == [found.value] * 2


@pytest.mark.parametrize(
    ("activation", "capacity", "value"),
    [
        (1, 2, 6),
        (1.0000000001, 2, 8),
        (0.1, 0.2, 6),
        (0.3, 0.1 + 0.1 + 0.1 + 0.3, 6),
        (0.7231987239871234, 2 * 0.7231987239871234, 6),
    ],
)
def test_an_order_that_needs_a_ten_billionth_more_than_the_memory_does_not_fit(
    activation, capacity, value
):
    """Two stages of 1 and 1: two micro-batches in flight take 6, one after the other 8."""
    memory = {"capacity": capacity, "activation": activation}
    pair = pipeline(
        num_devices=2,
        num_microbatches=2,
        times={"forward": 1, "backward": 1},
        p2p={"latency": 0},
        memory=memory,
    )
    columns = ppsolve.quick(pair, activation=[activation], capacity=[capacity])
    assert ppsolve.quick(pair).value == columns.value[0] == value


def test_no_columns_have_no_answers():
    assert len(ppsolve.quick(pipeline(), forward=[]).value) == 0


def test_a_capacity_of_arrays_may_have_no_limit():
    free, columns = (
        pipeline(memory=None),
        ppsolve.quick(pipeline(), capacity=[np.inf, 4]),
    )
    assert columns.value[0] == ppsolve.quick(free).value
    assert columns.bound[0] == ppsolve.quick(free).bound


def test_many_columns_are_cut_into_parts(monkeypatch):
    forward = np.linspace(50, 150, 25)
    whole = ppsolve.quick(pipeline(), forward=forward)
    monkeypatch.setattr("ppsolve.solver.kinds.pipeline.quick.MOST_CELLS", 5_000)
    parts = ppsolve.quick(pipeline(), forward=forward)
    for name in ("value", "bound", "by", "bound_by"):
        assert (getattr(whole, name) == getattr(parts, name)).all()


def test_where_nothing_fits_there_is_no_value():
    found = ppsolve.quick(pipeline(memory={"capacity": 0.5, "activation": 1}))
    assert (found.value, found.by, found.gap) == (None, None, None)


FULL = {"name": "full", "time": 2, "held": 0}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"p2p": {"mode": "link", "bytes": 1, "bandwidth": 1}}, "p2p.mode"),
        ({"optimizer": 3}, "optimizer"),
        ({"allreduce": 3}, "allreduce"),
        ({"objective": "device_span"}, "objective"),
        ({"placement": "bidirectional"}, "placement"),
        ({"times": {"forward": [list(range(1, 9))] * 4, "backward": 3}}, "lengths"),
        (
            {"memory": {"capacity": 4, "activation": 1, "forward_peak": 2}},
            "memory.forward_peak",
        ),
        (
            {"memory": {"capacity": 4, "activation": 1, "left_to_weight": 0}},
            "memory.left_to_weight",
        ),
        (
            {
                "memory": {
                    "capacity": 4,
                    "activation": 1,
                    "recompute": {"modes": [FULL]},
                }
            },
            "memory.recompute",
        ),
    ],
)
def test_what_a_quick_answer_does_not_know_is_refused(changes, field):
    with pytest.raises(
        ppsolve.InputError, match="expected a pipeline without it"
    ) as error:
        ppsolve.quick(pipeline(**changes))
    assert error.value.field == field


@pytest.mark.parametrize("given", ["own.json", [1, 2], None])
def test_what_is_no_pipeline_is_refused(given):
    with pytest.raises(
        ppsolve.InputError, match="expected a pipeline, as load_instance and parse"
    ):
        ppsolve.quick(given)
    with pytest.raises(
        ppsolve.InputError, match="expected an instance, as load_instance and par"
    ):
        ppsolve.curve(given, "capacity", [1])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"backward": [1, 2]}, 'expected an array of this pipeline, got "backward"'),
        ({"forwards": [1, 2]}, 'did you mean "forward"'),
        ({"forward": [[1, 2]]}, r"expected 1 numbers, or 1 x 4, got \(1, 2\)"),
        ({"forward": [1, 2], "latency": [1]}, r"expected 2 numbers, got \(1,\)"),
        ({"capacity": [-1, 2]}, r"^capacity\[0\]: expected 0 or a number from 1E-30"),
        ({"forward": [np.inf]}, r"^forward\[0\]: .* to 1E\+15, got inf"),
        ({"latency": [1, 1e16]}, r"^latency\[1\]: expected 0 or .*, got 1e\+16"),
        ({"forward": [[1] * 4, [1, 1, -1, 1]]}, r"^forward\[1\]\[2\]: .*, got -1"),
        (
            {"forward": [[1] * 4, [1] * 3]},
            r"^forward\[1\]: expected 4 .*, got a list of 3",
        ),
        (
            {"latency": [1, "x"]},
            r'^latency\[1\]: expected a number .*, got the text "x"',
        ),
        ({"forward": "x"}, r'^forward: expected an array of numbers, got the text "x"'),
    ],
)
def test_arrays_of_another_shape_are_refused(arrays, words):
    with pytest.raises(ppsolve.InputError, match=words):
        ppsolve.quick(pipeline(), **arrays)


def test_memory_of_devices_counts_static_memory_and_the_schedule_behind_the_value():
    # One activation on the last device, as many as there are stages on the first.
    alone = pipeline(memory={"capacity": 8, "activation": 1, "static": 2})
    answer = ppsolve.quick(alone)
    assert all(2 < amount <= 8 for amount in answer.memory)
    columns = ppsolve.quick(alone, static=[2, 0, 7.5], capacity=[8, 6, 8])
    assert columns.memory[0].tolist() == list(answer.memory)
    assert columns.value[1] == columns.value[0]
    assert (columns.memory[0] - columns.memory[1]).tolist() == [2] * alone.num_devices
    assert np.isnan(columns.value[2]) and np.isnan(columns.memory[2]).all()
    per_stage = ppsolve.quick(alone, static=[[2, 2, 2, 2], [7.5, 2, 2, 2]])
    assert per_stage.memory[0].tolist() == list(answer.memory)
    assert np.isnan(per_stage.value[1])


def test_a_pipeline_without_memory_has_no_memory():
    answer = ppsolve.quick(pipeline(memory=None))
    assert answer.memory is None
    assert np.isnan(ppsolve.quick(pipeline(memory=None), latency=[1, 2]).memory).all()


@pytest.mark.parametrize("seed", range(12))
def test_peaks_of_the_list_rule_are_those_at_each_moment(seed):
    document = drawn(seed) | {"memory": {"capacity": 4, "activation": 1}}
    if seed % 2:
        document["memory"]["released_by_backward_weight"] = 0.25
    instance = ppsolve.PipelineInstance(**document)
    stages = figures_of(instance, {}).slow
    shape = _shape(
        instance.stage_to_device,
        instance.num_microbatches,
        is_split=instance.times.is_split,
    )
    start = stages.starts(0)
    if start is None:
        pytest.skip("nothing fits")
    ends = start + np.vstack([*stages.duration])[shape.row, 0]
    problem = shape.problem
    last = len(problem.kinds) - 1
    expected = [0] * instance.num_devices
    for moment in start.tolist():
        held = [0] * instance.num_devices
        for op in range(problem.num_ops):
            stage, kind = problem.stage[op], problem.kind[op]
            late = int(stages.late[stage, 0])
            early = int(stages.held[stage, 0]) - late
            if kind == 0 and start[op] <= moment:
                held[problem.device[op]] += early + late
            if kind == 1 and ends[op] <= moment:
                held[problem.device[op]] -= early
            if kind == last and ends[op] <= moment:
                held[problem.device[op]] -= late
        expected = [max(a, b) for a, b in zip(expected, held, strict=True)]
    assert shape.peaks_of(stages, 0, start).tolist() == expected
