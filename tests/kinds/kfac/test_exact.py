"""The exact refresh against exhaustive search, and every result checked from the rules alone."""

from __future__ import annotations

import pickle
import random
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import HeuristicStatus, Status
from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.models.kinds.kfac.result import RefreshEntry, RefreshResult
from ppsolve.solver.kinds.kfac.bounds import iterations_bound
from tests.kinds.kfac.bruteforce import Task, broken_rules, figures, labels
from tests.kinds.kfac.cases import FOLDERS, NAMES, measured
from tests.marks import first

MARGINS = (0, 0.05, 0.3)


def timeline(
    rng: random.Random, room: int, unit: int = 1, tagged: bool = False
) -> dict[str, Any]:
    """A device with one or two micro-batches a pipe, and up to `room` K-FAC ops."""
    microbatches = rng.choice((1, 1, 2))
    calls = ["call_forward", "call_backward"]
    pipes = ["", ":up_pipe"] if tagged else [""]
    sequence = [calls[0] + pipe for pipe in pipes] * microbatches
    sequence += [calls[1] + pipe for pipe in pipes] * microbatches
    if rng.random() < 0.3:
        sequence[1:-1] = rng.sample(sequence[1:-1], len(sequence) - 2)
    found: dict[str, Any] = {}
    now = 0
    for label in sequence:
        end = now + rng.randint(1, 5) * unit + rng.randint(0, unit - 1)
        found.setdefault(label, []).append([now, end])
        now = end + rng.choice((0, 0, 3, 6, 9, 14)) * unit
    for module in "mn":
        for kind in ("cov", "sync", "inv"):
            for factor in "AB":
                for pipe in pipes if kind != "sync" else [""]:
                    needed = microbatches if kind == "cov" else 1
                    if needed <= room and rng.random() < 0.5:
                        room -= needed
                        pair = recorded(rng, needed, unit)
                        found[f"{kind}_kron_{factor}:{module}{pipe}"] = [pair]
    return found


def recorded(rng: random.Random, parts: int, unit: int) -> list[int | None]:
    if rng.random() < 0.1:
        return [None, None]
    begin = rng.randint(0, 20)
    return [begin, begin + rng.randint(0, 7 * parts) * unit + rng.randint(0, 1)]


def shifted(line: dict[str, Any], by: int) -> dict[str, Any]:
    return {
        label: [
            [None if time is None else time + by for time in pair] for pair in pairs
        ]
        for label, pairs in line.items()
    }


def optimum(
    lines: list[dict[str, Any]], **fields: Any
) -> tuple[KfacInstance, RefreshResult]:
    made = KfacInstance.parse(
        {
            "name": "random",
            "time_unit": "ns",
            "tie_break": "none",
            "timelines": lines,
            **fields,
        }
    )
    result = ppsolve.optimize(made, time_limit=60, workers=1)
    assert isinstance(result, RefreshResult)
    return made, result


def agree(lines: list[dict[str, Any]], **fields: Any) -> int | None:
    """Compare the exact answer with exhaustive search, and check it; return the optimum."""
    made, result = optimum(lines, **fields)
    task = Task(
        lines,
        Fraction(str(fields.get("margin_ratio", 0.05))),
        fields.get("sync_groups", ()),
        fields.get("saved"),
    )
    fewest: list[int | None] = [None] * len(lines)
    for devices in task.components():
        count = task.fewest(devices)
        for device in devices:
            fewest[device] = count
    if None in fewest:
        assert result.status is Status.INFEASIBLE
        assert result.reason
        return None
    best = max(count for count in fewest if count is not None)
    assert result.status is Status.OPTIMAL
    assert (result.value, result.bound, result.iterations) == (best, best, best)
    assert result.iterations_of == fewest
    assert result.bound_of == fewest
    recheck(task, result)
    assert ppsolve.check(made, result) == []
    return best


def starts_of(found: RefreshResult | RefreshEntry) -> dict[str, int]:
    assert found.schedule is not None
    starts = {op.id: op.start for op in found.schedule.ops}
    assert len(starts) == len(found.schedule.ops)
    assert all(op.end is not None and op.end >= op.start for op in found.schedule.ops)
    return starts


def recheck(task: Task, found: RefreshResult | RefreshEntry) -> None:
    """Check a schedule and its figures from the rules alone."""
    starts = starts_of(found)
    assert found.iterations_of is not None
    counts = found.iterations_of
    assert found.iterations == found.value == max(counts)
    assert broken_rules(task, starts, counts) == []
    assert found.schedule is not None
    for op in found.schedule.ops:
        if op.id in task.ops:
            assert op.end == op.start + task.ops[op.id].length, op.id
    own = figures(task, starts, counts)
    for name in ("usage_of", "bubbles_of", "peak_saved_of", "ages_of", "oldest_of"):
        assert getattr(found, name) == own[name], name
    assert found.labels is not None
    for device, count in enumerate(counts):
        listed(task, starts, device, count, found.labels[device])


def listed(
    task: Task, starts: dict[str, int], device: int, count: int, given: list[list[str]]
) -> None:
    """Check the labels of a device: exactly where its clock is in step, else their number."""
    calls = task.calls[device]
    ops = [op for op in task.ops.values() if device in op.devices]
    everything = Counter(
        [call.label for call in calls] * count + [op.label for op in ops]
    )
    everything.update({"-- start --": count, "-- end --": count})
    everything.update(["turn_off_save_inputs_outgrads", "turn_on_save_inputs_outgrads"])
    assert Counter(label for row in given for label in row) == everything
    in_step = all(0 <= call.start < call.end <= task.period for call in calls)
    if in_step and all(op.length for op in ops):
        assert given == labels(task, starts, device, count)


@pytest.mark.parametrize("block", first(1, range(4)))
def test_one_device_as_exhaustive_search(block: int) -> None:
    rng = random.Random(block)
    seen: Counter[int | None] = Counter()
    for number in range(25):
        line = timeline(rng, 6, rng.choice((1, 1, 7)), tagged=number % 4 == 0)
        seen[agree([line], margin_ratio=rng.choice(MARGINS))] += 1
    assert all(seen[count] for count in (None, 1, 2, 3))


@pytest.mark.parametrize("block", first(1, range(2)))
def test_a_clock_out_of_step_as_exhaustive_search(block: int) -> None:
    rng = random.Random(100 + block)
    seen: set[int | None] = set()
    for number in range(40):
        first, second = timeline(rng, 0), timeline(rng, 6, tagged=number % 4 == 0)
        skew = rng.randint(-20, 20)
        seen.add(
            agree([first, shifted(second, skew)], margin_ratio=rng.choice(MARGINS))
        )
    assert {1, 2} <= seen


@pytest.mark.parametrize("block", first(1, [1, 0]))
@pytest.mark.slow
def test_devices_that_meet_as_exhaustive_search(block: int) -> None:
    rng = random.Random(200 + block)
    met = 0
    for _ in range(40):
        first, second = timeline(rng, 3), shifted(timeline(rng, 3), rng.randint(-6, 6))
        shared = rng.choice("AB")
        for line in (first, second):
            begin = rng.randint(0, 9)
            line[f"sync_kron_{shared}:m"] = [[begin, begin + rng.randint(0, 6)]]
        best = agree(
            [first, second], margin_ratio=rng.choice(MARGINS), sync_groups=[[1, 0]]
        )
        met += best is not None
    assert met > 8


@pytest.mark.parametrize("block", first(1, range(2)))
@pytest.mark.slow
def test_saved_memory_as_exhaustive_search(block: int) -> None:
    rng = random.Random(300 + block)
    seen: Counter[bool] = Counter()
    for number in range(30):
        line = timeline(rng, 6, tagged=number % 4 == 0)
        saved = {"capacity": rng.choice((0, 1, 1, 2, 2.5, 3, 4))}
        if rng.random() < 0.5:
            saved |= {"input": 1.5, "error": 0.5}
        free = agree([line], margin_ratio=0)
        kept = agree([line], margin_ratio=0, saved=saved)
        assert kept is None or (free is not None and kept >= free)
        seen[kept == free] += 1
    assert seen[True]
    assert seen[False]


@pytest.mark.slow
def test_a_refresh_interval_is_the_most_that_is_allowed() -> None:
    rng = random.Random(400)
    seen: Counter[Status] = Counter()
    for _ in range(60):
        line = timeline(rng, 5)
        made, result = optimum([line], refresh_interval=2)
        fewest = Task([line]).fewest([0])
        fits = fewest is not None and fewest <= 2
        assert result.status is (Status.OPTIMAL if fits else Status.INFEASIBLE)
        assert result.value == (fewest if fits else None)
        seen[result.status] += 1
        if not fits and fewest is not None:
            assert "cannot refresh in 2 iterations, the refresh interval" in str(
                result.reason
            )
        _, quick = optimum_at_once(made)
        assert quick.value is None or (quick.value <= 2 and fits)
    assert min(seen.values()) > 5


def optimum_at_once(made: KfacInstance) -> tuple[KfacInstance, RefreshResult]:
    result = ppsolve.optimize(made, time_limit=0, workers=1)
    assert isinstance(result, RefreshResult)
    return made, result


@pytest.mark.parametrize("block", first(1, range(2)))
def test_bounds_and_first_schedules_are_true_without_any_search(block: int) -> None:
    rng = random.Random(500 + block)
    for _ in range(16):
        line = timeline(rng, 6, rng.choice((1, 7)))
        task = Task([line])
        fewest = task.fewest([0])
        made = KfacInstance.parse({"time_unit": "ns", "timelines": [line]})
        _, result = optimum_at_once(made)
        if fewest is None:
            assert result.status in {Status.INFEASIBLE, Status.UNKNOWN}
            continue
        assert result.bound is not None
        assert result.value is not None
        assert result.bound <= fewest <= result.value
        assert (result.status is Status.OPTIMAL) == (result.bound == result.value)
        recheck(task, result)


TIED = {"staleness": ("inv",), "usage": ("cov", "sync", "inv")}


@pytest.mark.parametrize("tie_break", first(1, TIED))
def test_tie_breaks_as_exhaustive_search(tie_break: str) -> None:
    rng = random.Random(600)
    proved = better = 0
    for number in range(30):
        lines = [timeline(rng, 5, tagged=number % 4 == 0)]
        fields: dict[str, Any] = {"margin_ratio": rng.choice((0, 0.05))}
        if number % 3 == 0:
            lines.append(shifted(timeline(rng, 2), rng.randint(-5, 5)))
            fields["sync_groups"] = [[0, 1]]
        _, result = optimum(lines, tie_break=tie_break, **fields)
        proved += tied(lines, result, tie_break, **fields)
        better += first_is_worse(lines, result, tie_break, **fields)
    assert proved > 15
    assert better


def tied(
    lines: list[dict[str, Any]], result: RefreshResult, tie_break: str, **fields: Any
) -> bool:
    """Check the value and the bound of a tie-break; return whether it is proved."""
    if result.schedule is None:
        return False
    task = Task(
        lines, Fraction(str(fields["margin_ratio"])), fields.get("sync_groups", ())
    )
    recheck(task, result)
    tie = result.tie_break
    assert tie is not None
    assert result.iterations_of is not None
    assert tie.value == total(task, starts_of(result), tie_break)
    least = 0
    for devices in task.components():
        count = result.iterations_of[devices[0]]
        best = task.least_total(devices, count, TIED[tie_break])
        assert best is not None
        least += best
    assert tie.bound <= least <= tie.value
    return tie.bound == tie.value


def first_is_worse(
    lines: list[dict[str, Any]], result: RefreshResult, tie_break: str, **fields: Any
) -> bool:
    _, plain = optimum(lines, **fields)
    assert (result.status, result.value, result.bound) == (
        plain.status,
        plain.value,
        plain.bound,
    )
    if plain.schedule is None:
        return False
    task = Task(lines, groups=fields.get("sync_groups", ()))
    first, last = (
        total(task, starts_of(found), tie_break) for found in (plain, result)
    )
    assert last <= first
    return last < first


def total(task: Task, starts: dict[str, int], tie_break: str) -> int:
    return sum(
        starts[op.name] + op.length
        for op in task.ops.values()
        if op.kind in TIED[tie_break]
    )


@pytest.mark.parametrize("block", first(1, range(2)))
def test_moved_ops_are_reported_exactly_when_a_rule_breaks(block: int) -> None:
    rng = random.Random(700 + block)
    seen: Counter[bool] = Counter()
    for _ in range(16):
        lines = [timeline(rng, 3), shifted(timeline(rng, 3), rng.randint(-15, 15))]
        fields = {
            "margin_ratio": rng.choice(MARGINS),
            "sync_groups": rng.choice(([], [[0, 1]])),
        }
        made, result = optimum(lines, **fields)
        if result.schedule is None or result.iterations_of is None:
            continue
        task = Task(lines, Fraction(str(fields["margin_ratio"])), fields["sync_groups"])
        for _ in range(25):
            data = result.schedule.model_dump(mode="json")
            moved(data["ops"], rng)
            starts = {op["id"]: op["start"] for op in data["ops"]}
            is_wrong = bool(broken_rules(task, starts, result.iterations_of))
            assert bool(ppsolve.check(made, data)) == is_wrong, (lines, fields, starts)
            seen[is_wrong] += 1
    assert seen[True] > 100
    assert seen[False] > 5


def moved(ops: list[dict[str, Any]], rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2))):
        op = rng.choice(ops)
        by = rng.choice((1, -1, 2, -2, 5, -7, rng.randint(-60, 60)))
        op["start"] += by
        op["end"] += by


HAND = [name for name in NAMES if name.startswith("hand")]
FEWEST = {
    "c01_gpipe_base_p4_m4": {1: 2},
    "c03_chimera_base_p4_m4": {0: 8, 1: 6},
    "hand_P1_packing": {0: 1},
    "hand_P2_barrier": {1: 1},
}


@cache
def lines_of(name: str) -> tuple[dict[str, Any], ...]:
    files = FOLDERS[NAMES.index(name)].glob("*.pickle")
    numbered = {int(re.findall(r"node(\d+)", path.stem)[-1]): path for path in files}
    return tuple(pickle.loads(numbered[node].read_bytes()) for node in sorted(numbered))


@cache
def solved(name: str) -> tuple[KfacInstance, RefreshResult]:
    return optimum(list(lines_of(name)), name=name)


def entry(result: RefreshResult, name: str) -> RefreshEntry:
    return next(entry for entry in result.heuristics if entry.name == name)


def only_quick(quick: Sequence[str]) -> list[Any]:
    return [
        pytest.param(name, marks=() if name in quick else pytest.mark.slow)
        for name in NAMES
    ]


# On c02 a device that does not decide the value could take fewer than the heuristics give it.
@pytest.mark.parametrize(
    "name", only_quick([*HAND, "c02_1f1b_base_p4_m4", "c09_gpipe_large_p8_m4"])
)
@pytest.mark.slow
def test_exact_lies_between_the_bound_and_the_causal_greedy(name: str) -> None:
    made, result = solved(name)
    causal, published = entry(result, "pipefisher-causal"), entry(result, "pipefisher")
    if result.status is Status.INFEASIBLE:
        assert name in {"hand_B3_unplaced", "hand_B5_margin"}
        assert causal.iterations_of is None
        assert "fits into no hole" in str(result.reason)
        return
    assert result.status is Status.OPTIMAL
    pattern = measured(name)
    work = [
        iterations_bound(pattern, [device]).value
        for device in range(len(pattern.devices))
    ]
    assert result.iterations_of is not None
    assert causal.iterations_of is not None
    assert published.iterations_of is not None
    for device, fewest in enumerate(result.iterations_of):
        assert work[device] <= fewest <= causal.iterations_of[device]
        if published.iterations_of[device] < fewest:
            assert published.status is HeuristicStatus.INFEASIBLE
            assert published.breaks_of is not None
            assert published.breaks_of[device]
    assert result.iterations is not None
    assert causal.iterations is not None
    assert max(work) <= result.iterations <= causal.iterations
    assert result.bound_of == result.iterations_of
    assert ppsolve.check(made, result) == []
    for device, fewest in FEWEST.get(name, {}).items():
        assert result.iterations_of[device] == fewest


@pytest.mark.parametrize("name", only_quick(HAND))
def test_schedules_of_every_folder_from_the_rules_alone(name: str) -> None:
    made, result = solved(name)
    task = Task(lines_of(name))
    if result.status is not Status.INFEASIBLE:
        recheck(task, result)
    causal = ppsolve.simulate(made, "pipefisher-causal")
    assert isinstance(causal, RefreshEntry)
    if causal.status is HeuristicStatus.FEASIBLE:
        recheck(task, causal)
        assert ppsolve.check(made, causal) == []


@pytest.mark.parametrize("name", HAND)
def test_hand_made_folders_as_exhaustive_search(name: str) -> None:
    _, result = solved(name)
    task = Task(lines_of(name))
    fewest = [task.fewest([device]) for device in range(len(task.calls))]
    if None in fewest:
        assert result.status is Status.INFEASIBLE
    else:
        assert result.iterations_of == fewest


def test_the_work_bound_alone_refutes_two_iterations() -> None:
    bound = iterations_bound(measured("c01_gpipe_base_p4_m4"), [3])
    assert (bound.value, bound.by) == (3, "work")


@pytest.mark.parametrize("device", [0, 1, 2, 3, 7])
def test_parity_claims_one_iteration_that_causality_forbids(device: int) -> None:
    _, result = solved("c09_gpipe_large_p8_m4")
    published = entry(result, "pipefisher")
    assert published.iterations_of is not None
    assert published.breaks_of is not None
    assert published.iterations_of[device] == 1
    assert result.bound_of is not None
    assert result.bound_of[device] == 2
    assert set(published.breaks_of[device]) & {
        "cov_before_data",
        "sync_before_cov",
        "inv_before_cov",
        "inv_before_sync",
    }


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_many_more_as_exhaustive_search(block: int) -> None:
    rng = random.Random(1000 + block)
    for number in range(80):
        line = timeline(rng, 8, rng.choice((1, 7, 20)), tagged=number % 3 == 0)
        agree([line], margin_ratio=rng.choice(MARGINS))
        first, second = timeline(rng, 4, tagged=number % 5 == 0), timeline(rng, 4)
        fields: dict[str, Any] = {
            "margin_ratio": rng.choice(MARGINS),
            "sync_groups": [[0, 1]],
        }
        if rng.random() < 0.3:
            fields["saved"] = {"capacity": rng.choice((2, 3, 4))}
        agree([first, shifted(second, rng.randint(-40, 40))], **fields)
