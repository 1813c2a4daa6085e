"""The verdict on recorded runs: tiny ones worked out by hand, and the published ones."""

from __future__ import annotations

import math
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.trace.table import KINDS, Trace, joined
from ppsolve.solver.clock import Clock
from ppsolve.solver.formats.detect import read_trace
from ppsolve.solver.kernels.compilation import answering_within
from ppsolve.solver.studies.traces.diagnosis import diagnose as diagnose_module
from ppsolve.solver.studies.traces.diagnosis.changes import changes_of, searched_help
from ppsolve.solver.studies.traces.diagnosis.diagnose import (
    TIME_LIMIT,
    StepInProgress,
    Transfers,
    bubble_of,
    diagnose,
    recorded_variant,
)
from ppsolve.solver.studies.traces.diagnosis.steps import (
    Searches,
    Variant,
    held_by,
    steps_of,
)
from ppsolve.solver.studies.traces.diagnosis.verdict import Help
from ppsolve.solver.studies.traces.replay import least_span
from tests.marks import first
from tests.paths import DATA
from tests.studies.traces import cases

US = 1000
SECONDS = 8.0
"""Time limit: too short to compile kernels, enough for every search of these."""


def run_of(replicas: list[list[tuple[str, int, int, float, float]]]) -> Trace:
    """Return a run of one step: kind, stage, micro-batch, start and length in us, by replica."""
    rows = [(number, *op) for number, ops in enumerate(replicas) for op in ops]
    columns = {
        "step": [0] * len(rows),
        "replica": [row[0] for row in rows],
        "stage": [row[2] for row in rows],
        "chunk": [0] * len(rows),
        "kind": [KINDS.index(row[1]) for row in rows],
        "microbatch": [row[3] for row in rows],
        "start": [round(row[4] * US) for row in rows],
        "end": [round((row[4] + row[5]) * US) for row in rows],
        "device": [row[2] for row in rows],
    }
    return Trace.of(columns, unit="us", sources=("made",), format="table")


def one_stage(lengths: list[float]) -> list[tuple[str, int, int, float, float]]:
    """Return a replica of one stage: forward and backward of each micro-batch in turn."""
    ops, now = [], 0.0
    for number, length in enumerate(lengths):
        for kind in "FB":
            ops.append((kind, 0, number, now, length))
            now += length
    return ops


def helps_of(found):
    return {one.change: one for one in found.helps}


def test_an_optimal_order_is_proved_and_called_so():
    found = diagnose(cases.trace(), SECONDS)
    (step,) = found.steps
    (replica,) = step.replicas
    assert replica.recorded == replica.replay == cases.SPAN * US
    assert replica.ordered == replica.bound == step.ordered_bound == cases.SPAN * US
    assert replica.status is Status.OPTIMAL
    assert (step.exchanged, step.exchanged_bound) == (step.ordered, step.ordered_bound)
    assert found.is_order_optimal


def test_memory_is_what_the_run_held():
    assert held_by(steps_of(cases.trace())) == [2, 1]


def test_stages_may_run_on_any_device():
    devices = [1 - row[1] for row in cases.PLAN]
    found = diagnose(cases.trace(device=devices), SECONDS)
    (step,) = found.steps
    assert held_by(steps_of(cases.trace(device=devices))) == [1, 2]
    assert step.ordered == step.ordered_bound == cases.SPAN * US


def test_exchange_evens_replicas_out():
    # 2 x (10 + 10) against 2 x (1 + 1) us; with one of each both replicas take 22.
    found = diagnose(run_of([one_stage([10, 10]), one_stage([1, 1])]), SECONDS)
    (step,) = found.steps
    assert [one.ordered for one in step.replicas] == [40 * US, 4 * US]
    assert step.ordered == step.ordered_bound == step.replay == 40 * US
    assert step.exchanged == step.exchanged_bound == 22 * US
    assert helps_of(found)["exchange"].saved == pytest.approx(0.45)
    assert found.bubble == dict.fromkeys(found.bubble, 0.0)


def test_a_bubble_of_equal_ops_is_fill_and_drain():
    # Both devices work 60 of 90 us, and 1F1B fills and drains in F + B = 30.
    bubble = diagnose(cases.trace(), 0.0).bubble
    assert bubble["fill and drain"] == 30 * US
    assert sum(abs(part) for part in bubble.values()) == 30 * US


def test_a_late_start_is_unexplained():
    late = [
        (*row[:3], row[3] + (5 if row == cases.PLAN[-1] else 0)) for row in cases.PLAN
    ]
    bubble = diagnose(cases.trace(late), 0.0).bubble
    assert bubble["unexplained"] + bubble["transfers"] == 5 * US
    assert sum(bubble.values()) == 35 * US


def one_at_a_time(**more: float) -> Trace:
    """Three micro-batches on two equal stages, each when the one before is done: 3 x 60 us."""
    order = (("F", 0, 10), ("F", 1, 10), ("B", 1, 20), ("B", 0, 20))
    ops, now = [], 0.0
    for number in range(3):
        for kind, stage, length in order:
            ops.append((kind, stage, number, now, float(length)))
            now += length + more.get(f"{kind}{stage}", 0.0)
    return run_of([ops])


def jittery(seed: int) -> Trace:
    """Return a run of random sizes, order, lengths and gaps, with clocks that are a little off."""
    random = np.random.default_rng(seed)
    stages, microbatches = (int(random.integers(1, 5)) for _ in range(2))
    done: dict[tuple[str, int, int], float] = {}
    free = [0.0] * stages
    ops = []
    left = [
        (kind, s, m)
        for kind in "FB"
        for s in range(stages)
        for m in range(microbatches)
    ]
    while left:
        ready = [op for op in left if all(key in done for key in needs(op, stages))]
        kind, stage, number = op = ready[int(random.integers(len(ready)))]
        begin = max([free[stage], *(done[key] for key in needs(op, stages))])
        begin += random.choice([0.0, -0.1, 5.0])
        length = float(random.integers(10, 60))
        ops.append((kind, stage, number, begin, length))
        free[stage] = done[op] = begin + length
        left.remove(op)
    return run_of([ops])


def needs(op: tuple[str, int, int], stages: int) -> list[tuple[str, int, int]]:
    kind, stage, number = op
    if kind == "F":
        return [("F", stage - 1, number)] if stage else []
    return [
        ("F", stage, number),
        *([("B", stage + 1, number)] if stage < stages - 1 else []),
    ]


@pytest.mark.parametrize("seed", first(12, range(60)))
def test_no_part_of_the_idle_time_is_negative(seed):
    trace = jittery(seed)
    steps = steps_of(trace)
    parts = bubble_of(steps, recorded_variant(steps), Transfers.of(trace))
    assert all(math.copysign(1, part) > 0 for part in parts.values()), parts
    (one,) = steps[0].parts
    work = float(one.part.duration.sum()) / one.instance.num_devices
    assert sum(parts.values()) == pytest.approx(max(0.0, one.span - work))


def test_what_saves_nothing_by_itself_counts_with_the_next_cause():
    """Long ops run beside long ones, 100 us in all. If all ops took 20 us, it would be 120."""
    ops = [
        ("F", 0, 0, 0, 10),
        ("F", 0, 1, 10, 30),
        ("F", 1, 0, 10, 30),
        ("F", 1, 1, 40, 10),
    ]
    back = [
        ("B", 1, 0, 50, 10),
        ("B", 1, 1, 60, 30),
        ("B", 0, 0, 60, 30),
        ("B", 0, 1, 90, 10),
    ]
    trace = run_of([[(*op[:3], float(op[3]), float(op[4])) for op in [*ops, *back]]])
    found = diagnose(trace, 0.0).bubble
    assert {name: part / US for name, part in found.items() if part} == {
        "fill and drain": 20
    }


def steps_like(trace: Trace, count: int) -> Trace:
    return joined([replace(trace, step=trace.step + number) for number in range(count)])


def test_of_steps_that_are_alike_one_is_searched(monkeypatch):
    asked = []
    answer = Searches.answer

    def counted(self, variant, step, **more):
        asked.append((variant.name, step.number))
        return answer(self, variant, step, **more)

    monkeypatch.setattr(Searches, "answer", counted)
    other = one_at_a_time(F0=3)
    trace = joined(
        [steps_like(one_at_a_time(), 3), replace(other, step=other.step + 9)]
    )
    found = diagnose(trace, SECONDS)
    assert [step.step for step in found.steps] == [0, 1, 2, 9]
    assert len({(step.recorded, step.ordered) for step in found.steps[:3]}) == 1
    assert {step for name, step in asked if name == "recorded"} == {0, 9}
    assert helps_of(found)["more memory"].steps == (0, 1, 2, 9)
    assert len([step for name, step in asked if name == "more memory"]) == 2


def standing_clock(left: float) -> Mock:
    """Return a clock of which time left stays what it is, and shares are the whole."""
    clock = Mock(left=left, part_for=lambda seconds: min(1.0, seconds / left))
    clock.share.return_value = clock
    return clock


def test_the_most_promising_change_has_its_time_first(monkeypatch):
    """No order takes less than 90 us, with split backwards 70, with more chunks 75."""
    given = []
    monkeypatch.setattr(
        diagnose_module,
        "searched_help",
        lambda change, *_: given.append(change.name) or Help(change.name, ""),
    )
    shares = standing_clock(100.0)
    steps, verdicts = steps_of(cases.trace()), diagnose(cases.trace(), 0.0).steps
    given.clear()
    found = diagnose_module._helps(
        steps, verdicts, recorded_variant(steps), Searches(), shares
    )
    assert given == ["split backward", "more chunks", "more memory"]
    assert [one.change for one in found][-3:] == [
        "split backward",
        "more memory",
        "more chunks",
    ]
    # Each has 2 s; of what is left more they have shares by what they may gain: 20, 15 and 0.
    parts = [call.args[0] for call in shares.share.call_args_list]
    assert parts == pytest.approx([0.02 + 0.94 * 20 / 35, 0.02 + 0.96, 1])


def test_a_step_takes_what_its_longest_replica_takes():
    (step,) = steps_of(run_of([one_stage([10, 10]), one_stage([1, 1])]))
    assert recorded_variant([step]).least(step) == 40 * US


def test_a_short_time_goes_to_the_most_promising_change(monkeypatch):
    monkeypatch.setattr(
        diagnose_module, "searched_help", lambda change, *_: Help(change.name, "")
    )
    shares = standing_clock(2.5)
    steps, verdicts = steps_of(cases.trace()), diagnose(cases.trace(), 0.0).steps
    diagnose_module._helps(steps, verdicts, recorded_variant(steps), Searches(), shares)
    assert [call.args[0] for call in shares.share.call_args_list] == pytest.approx(
        [0.8, 0.8, 1]
    )


def test_waiting_for_room_is_memory():
    # 10 + 3 x 30 + 20 on stage 1 with room enough. Room for one: each holds it for 60 us.
    bubble = diagnose(one_at_a_time(), 0.0).bubble
    assert {name: part / US for name, part in bubble.items() if part} == {
        "fill and drain": 30,
        "memory": 60,
    }


def test_waiting_with_room_enough_is_the_order():
    bubble = diagnose(one_at_a_time(), 0.0, capacity=[3]).bubble
    assert {name: part / US for name, part in bubble.items() if part} == {
        "fill and drain": 30,
        "order": 60,
    }


def test_a_given_capacity_is_searched_in():
    with answering_within(0.0):  # nothing is compiled
        (step,) = steps_of(one_at_a_time())
        one = StepInProgress(step, recorded_variant([step], [2]))
        one.search(Searches(), Clock(SECONDS), is_free=False, seed=1)
    assert one.verdict.ordered == one.verdict.ordered_bound == 120 * US


@pytest.mark.parametrize(
    ("capacity", "text"),
    [([1], "at least 2 for device 0"), ([2, 1, 1], "one number or 2")],
)
def test_a_capacity_below_what_was_held_is_refused(capacity, text):
    with pytest.raises(InputError, match=text):
        diagnose(cases.trace(), 0.0, capacity=capacity)


def test_transfers_are_half_of_the_fastest_round_trip():
    # Each forward is handed over in 3 us and each gradient in 5: 4 us either way.
    found = diagnose(one_at_a_time(F0=3, B1=5), 0.0).bubble
    assert found["transfers"] == 3 * (4 + 4) * US
    assert found["unexplained"] == 0


def test_transfers_that_were_recorded_count_as_they_are():
    # TF takes 3 of the 6 us that pass, TB all of its 5.
    given = one_at_a_time(F0=6, B1=5)
    sent = given.where((given.kind == KINDS.index("F")) & (given.stage == 0))
    back = given.where((given.kind == KINDS.index("B")) & (given.stage == 1))
    ahead = replace(sent, kind=sent.kind + 4, start=sent.end, end=sent.end + 3 * US)
    home = replace(back, kind=back.kind + 4, start=back.end, end=back.end + 5 * US)
    found = diagnose(joined([given, ahead, home]), 0.0).bubble
    assert found["transfers"] == 3 * (3 + 5) * US
    assert found["unexplained"] == 3 * 3 * US


def uneven() -> Trace:
    """Stage 0 takes 10 and 20 us, stage 1 twice as long; GPipe of one micro-batch after another."""
    ops, now = [], 0.0
    for number in (0, 1):
        for kind, stage, length in (
            ("F", 0, 10),
            ("F", 1, 20),
            ("B", 1, 40),
            ("B", 0, 20),
        ):
            ops.append((kind, stage, number, now, float(length)))
            now += length
    return run_of([ops])


def test_even_split_and_relief_keep_the_total():
    # One micro-batch at a time takes the sum of all ops, however stages share it.
    helps = helps_of(diagnose(uneven(), 0.0))
    assert helps["even split"].value == 180 * US
    # Device 1 works 120 of 180: it takes 90, and device 0 90 in place of 60.
    assert helps["relieve slow device"].value == 180 * US
    assert "device 1" in helps["relieve slow device"].assumes


def searched(trace: Trace) -> dict[str, Help]:
    """Return the changes that are searched, with no limit of time."""
    with answering_within(0.0):  # nothing is compiled
        found, steps = diagnose(trace, 0.0), steps_of(trace)
        changes = changes_of(steps, recorded_variant(steps))
        return {
            change.name: searched_help(change, steps, found.steps, Searches(), Clock())
            for change in changes
            if isinstance(change, Variant) and change.is_searched
        }


def test_more_memory_lets_micro_batches_overlap():
    found = searched(uneven())["more memory"]
    # 10 before the first F1, 2 x (20 + 40) on device 1, 20 after its last B.
    assert found.value == found.bound == 150 * US
    assert found.replay == 180 * US
    assert found.steps == (0,)


def test_splitting_the_backward_shortens_the_way_back():
    # Both micro-batches pass one at a time: F 10 + 20, I 20 + 10, W 10 at the end of each on
    # device 0; the weight gradient of 20 on device 1 runs meanwhile.
    found = searched(uneven())["split backward"]
    assert found.bound <= found.value < 180 * US


def test_without_time_everything_is_still_true():
    found = diagnose(read_trace([DATA / "traces" / "ST.parquet"]), 0.0)
    for step in found.steps:
        assert step.ordered_bound <= step.ordered == step.replay
        assert step.exchanged_bound <= step.exchanged == step.ordered
    helps = helps_of(found)
    assert helps["split backward"].value is None
    assert "time limit" in helps["split backward"].assumes


def test_without_time_bounds_still_count_head_load_and_tail():
    steps = steps_of(read_trace([DATA / "traces" / "ST.parquet"]))
    found = diagnose(read_trace([DATA / "traces" / "ST.parquet"]), 0.0)
    for step, verdict in zip(steps, found.steps, strict=True):
        for part, one in zip(step.parts, verdict.replicas, strict=True):
            assert least_span(part.part) <= one.bound <= one.replay


def test_searches_that_time_cuts_off_are_not_finished():
    (step,) = steps_of(run_of([one_stage([10, 10]), one_stage([1, 1])]))
    variant, searches = recorded_variant([step]), Searches()
    with answering_within(0.0):  # nothing is compiled
        one = StepInProgress(step, variant)
        one.search(searches, Clock(0.0), is_free=True, seed=1)
        assert one.unfinished == {False, True}
        assert one.verdict.exchanged == 40 * US
        one.search(searches, Clock(SECONDS), is_free=True, seed=2)
    assert one.unfinished == {False}
    assert one.verdict.exchanged == one.verdict.exchanged_bound == 22 * US


@pytest.mark.slow
def test_published_uneven_stages():
    """ST: the order is optimal, an even split would save 15 %."""
    found = diagnose(read_trace([DATA / "traces" / "ST.parquet"]), 20.0)
    assert found.is_order_optimal
    assert helps_of(found)["even split"].saved == pytest.approx(0.15, abs=0.01)
    for step in found.steps:
        assert step.exchanged_bound <= step.exchanged <= step.ordered <= step.replay
        for one in step.replicas:
            assert one.bound <= one.ordered <= one.replay
    slowest = [max(step.replicas, key=lambda one: one.recorded) for step in found.steps]
    expected = sum(one.recorded for one in slowest) / len(slowest)
    work = expected - sum(found.bubble.values())
    assert 0 < work < expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["primus_pp8", "ST.parquet", "SE.parquet"])
def test_every_change_of_published_runs_has_a_value(name):
    found = diagnose(read_trace([DATA / "traces" / name]), TIME_LIMIT)
    without = [one.change for one in found.helps if one.value is None]
    assert without == (["exchange"] if name == "primus_pp8" else [])
    for one in found.helps:
        assert one.value is None or (one.bound or 0.0) <= one.value
        assert one.value is None or one.steps
    assert min(found.bubble.values()) >= 0
    assert found.best is not None


def test_document_is_in_seconds_and_has_the_names_that_readers_use():
    document = diagnose(cases.trace(), 0.0).document()
    assert (document["schema"], document["time_unit"]) == (1, "s")
    (step,) = document["steps"]
    figures = [
        "recorded",
        "replay",
        "ordered",
        "ordered_bound",
        "exchanged",
        "exchanged_bound",
    ]
    assert list(step) == ["step", *figures, "replicas"]
    assert list(document["mean"]) == figures
    assert list(step["replicas"][0]) == [
        "replica", "recorded", "replay", "ordered", "bound", "status",
    ]  # fmt: skip
    assert document["mean"]["recorded"] == step["recorded"] == pytest.approx(90e-6)


def test_impossible_orders_are_refused():
    # On clocks of their own, device 0 runs B before F of the same micro-batch.
    ops = [
        ("F", 0, 0, 50, 10),
        ("F", 1, 0, 10, 10),
        ("B", 1, 0, 30, 10),
        ("B", 0, 0, 20, 10),
    ]
    with pytest.raises(InputError, match="impossible"):
        diagnose(run_of([[(*op[:3], float(op[3]), float(op[4])) for op in ops]]), 0.0)
