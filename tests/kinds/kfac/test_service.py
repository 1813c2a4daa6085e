"""Exact refreshes as a service: corrupted results, odd but valid input, bad input."""

from __future__ import annotations

import copy
import itertools
import json
import random
import re
from functools import cache
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import HeuristicStatus, Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.models.kinds.kfac.result import RefreshEntry, RefreshResult
from tests.kinds.kfac.bruteforce import Task, broken_rules
from tests.kinds.kfac.test_exact import optimum, timeline
from tests.marks import first

# Corrupted results ---------------------------------------------------------------------------

PIPE = {"call_forward": [[0, 10], [30, 40]], "call_backward": [[70, 80], [90, 100]]}
WORK = {
    "cov_kron_A:m": [[0, 10]],
    "cov_kron_B:m": [[0, 10]],
    "sync_kron_A:m": [[0, 4]],
    "inv_kron_A:m": [[0, 14]],
    "inv_kron_B:m": [[0, 14]],
}


@cache
def small() -> tuple[KfacInstance, RefreshResult]:
    made, result = optimum([{**PIPE, **WORK}, {**PIPE, **WORK}], sync_groups=[[0, 1]])
    assert result.value == 2
    return made, result


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(small()[1].model_dump_json())
    return found


def refused(data: Any) -> set[str]:
    """The rules that a document breaks; empty only if it is accepted."""
    try:
        return {violation.rule for violation in ppsolve.check(small()[0], data)}
    except InputError:
        return {"unreadable"}


def op_of(data: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(op for op in data["ops"] if op["id"] == name)
    return found


def move(op: dict[str, Any], start: int) -> None:
    op["start"], op["end"] = start, start + op["end"] - op["start"]


def test_the_result_itself_is_accepted() -> None:
    assert refused(document()) == set()
    assert refused(document()["schedule"]) == set()


@pytest.mark.parametrize("step", first(1, [41, 17]))
def test_every_op_dropped_doubled_or_moved_is_reported(step: int) -> None:
    data = document()
    task = Task([{**PIPE, **WORK}] * 2, groups=[[0, 1]])
    starts = {op["id"]: op["start"] for op in data["schedule"]["ops"]}
    for place, op in enumerate(data["schedule"]["ops"]):
        one = copy.deepcopy(data)
        del one["schedule"]["ops"][place]
        assert refused(one) - {"objective"}, op["id"]
        two = copy.deepcopy(data)
        two["schedule"]["ops"].append(op)
        assert refused(two) == {"unreadable"}
        late = copy.deepcopy(data)
        late["schedule"]["ops"][place]["end"] += 1
        assert "duration" in refused(late)
        for start in range(-3, 203, step):
            other = copy.deepcopy(data)["schedule"]
            move(other["ops"][place], start)
            is_wrong = bool(broken_rules(task, {**starts, op["id"]: start}, [2, 2]))
            assert bool(refused(other)) == is_wrong, (op["id"], start)


@pytest.mark.parametrize("every", first(1, [3, 1]))
def test_starts_that_change_places_are_reported(every: int) -> None:
    data = document()["schedule"]
    task = Task([{**PIPE, **WORK}] * 2, groups=[[0, 1]])
    for one, two in list(itertools.combinations(range(len(data["ops"])), 2))[::every]:
        other = copy.deepcopy(data)
        a, b = other["ops"][one], other["ops"][two]
        starts = a["start"], b["start"]
        move(a, starts[1])
        move(b, starts[0])
        is_wrong = broken_rules(
            task, {op["id"]: op["start"] for op in other["ops"]}, [2, 2]
        )
        assert bool(refused(other)) == bool(is_wrong), (a["id"], b["id"])


@pytest.mark.parametrize(
    ("name", "start", "rule"),
    [
        ("0/inv_kron_A:m", 55, "window"),  # 55 + 1.05 * 14 = 69.7 < 70: fits
        ("0/inv_kron_A:m", 56, "window"),  # 56 + 14 = 70, in the margin
        ("0/inv_kron_A:m", 62, "window"),
        ("0/inv_kron_A:m", 95, "window"),
        ("0/cov_kron_A:m#0", 5, "window"),
        ("0/cov_kron_B:m#0", 60, "precedence"),
        ("0/inv_kron_B:m", 10, "precedence"),
        ("0+1/sync_kron_A:m", 10, "precedence"),
        ("1/call_backward#1@1", 191, "pin"),
        ("1/call_forward#0@0", 1, "pin"),
    ],
)
def test_rules_by_name(name: str, start: int, rule: str) -> None:
    data = document()["schedule"]
    move(op_of(data, name), start)
    assert (rule in refused(data)) == (start != 55)


CLAIMS: dict[str, list[Any]] = {
    "value": [
        1,
        3,
        0,
        -1,
        2.5,
        True,
        "2",
        [2],
        {},
        float("nan"),
        float("inf"),
        10**400,
    ],
    "iterations": [1, 3, "2", True, [2], float("nan")],
    "iterations_of": [
        [1, 2],
        [2],
        [2, 2, 2],
        [],
        "22",
        2,
        [True, 2],
        [None, 2],
        {"0": 2},
    ],
    "bound": [1, 3, 99, "2", [2], {}, float("nan"), -(10**400)],
    "gap": [0.5, -0.1, "0", [], float("nan")],
    "bound_of": [[3, 2], [99, 99], "22", [None, 2], [2], 5],
    "bubble_ratio": [0.9, -1, "x", [], float("nan")],
    "makespan": [1, "x", [], float("nan")],
    "device_span": [1, "x", {}],
    "time_unit": ["us", 3, []],
    "labels": [[], "x", [[["a"]]], 3, [[], []], {}],
    "usage_of": [[1.0, 1.0], "x", [None, None], [], {}],
    "bubbles_of": [[0, 0], "x", [None, 1]],
    "peak_saved_of": [[99, 99], "x"],
    "ages_of": [[{}, {}], 3, [{"inv_kron_A:m": 0, "inv_kron_B:m": 7}, {}]],
    "oldest_of": [[77, 77], "x", [None, None]],
    "schedule": [
        None,
        3,
        [],
        "x",
        {},
        {"ops": 3},
        {"ops": []},
        {"ops": [None]},
        {"ops": [{}]},
    ],
}


@pytest.mark.parametrize("field", CLAIMS)
def test_wrong_claims_are_reported(field: str) -> None:
    for wrong in CLAIMS[field]:
        data = document()
        data[field] = wrong
        assert refused(data), wrong


def test_labels_out_of_order_are_reported() -> None:
    for device, iteration in itertools.product(range(2), range(2)):
        data = document()
        data["labels"][device][iteration].reverse()
        assert "objective" in refused(data)


def test_an_optimum_needs_a_bound() -> None:
    assert "objective" in refused({**document(), "bound": None, "gap": None})
    assert "objective" in refused(
        {**document(), "value": None, "bound": 1, "gap": None}
    )
    weaker = {**document(), "bound": 1, "gap": 0.5, "bound_of": [1, 1]}
    assert "objective" in refused(weaker)
    assert refused({**weaker, "status": "FEASIBLE"}) == set()
    unbound = {
        **weaker,
        "status": "FEASIBLE",
        "bound": None,
        "gap": None,
        "bound_of": [99, 99],
    }
    assert "objective" in refused(unbound)


@pytest.mark.parametrize(
    "data", [None, 3, "x", [], {}, True, b"x", 1.5, [[]], {"ops": {}}]
)
def test_what_is_no_document_is_refused(data: Any) -> None:
    with pytest.raises(InputError):
        ppsolve.check(small()[0], data)


def test_rows_of_garbage_are_refused() -> None:
    garbage = [
        None,
        3,
        "x",
        [],
        {},
        True,
        float("nan"),
        -1,
        10**400,
        "0/call_forward#0@99999",
    ]
    for key in ("id", "start", "end", "kind", "stage", "device", "microbatch"):
        for wrong in garbage:
            data = document()
            data["schedule"]["ops"][3][key] = wrong
            found = refused(data)
            if wrong is not None or key in {"id", "start"}:
                same = wrong == document()["schedule"]["ops"][3][key]
                assert found or (same and not isinstance(wrong, bool)), (key, wrong)


def test_a_document_of_another_instance_is_refused() -> None:
    other, result = optimum([PIPE])
    assert refused(result)
    with pytest.raises(InputError):
        ppsolve.check(other, document())


def test_an_iteration_number_out_of_reach_is_refused_at_once() -> None:
    for name in (
        "0/call_forward#0@99999",
        "0/x@99999",
        "0/call_forward#9999999@1",
        "9/x@1",
    ):
        with pytest.raises(InputError, match="unknown op"):
            ppsolve.check(small()[0], {"ops": [{"id": name, "start": 0}]})


# Odd but valid -------------------------------------------------------------------------------

NODE = {"call_forward": [[0, 10]], "call_backward": [[90, 100]]}


def line(*lengths: int, at: int = 0, **more: Any) -> dict[str, Any]:
    """The device of `NODE`, `at` later, with inversions of some lengths."""
    calls = {key: [[a + at, b + at] for a, b in pairs] for key, pairs in NODE.items()}
    return {**calls, **inversions(*lengths), **more}


def inversions(*lengths: int) -> dict[str, Any]:
    return {f"inv_kron_A:m{number}": [[0, d]] for number, d in enumerate(lengths)}


def since_1970(times: dict[str, Any]) -> dict[str, Any]:
    return {
        key: [[a + 10**18, b + 10**18] for a, b in pairs]
        for key, pairs in times.items()
    }


VALID: list[tuple[str, list[dict[str, Any]], dict[str, Any], list[int] | None]] = [
    ("no work", [line(), line()], {}, [1, 1]),
    (
        "only nulls",
        [{**NODE, "cov_kron_A:m": [[None, None]], "inv_kron_A:m": [[None, None]]}],
        {},
        [1],
    ),
    (
        "a full step",
        [{"call_forward": [[0, 50]], "call_backward": [[50, 100]], **inversions(0)}],
        {},
        None,
    ),
    (
        "a full step, no margin",
        [{"call_forward": [[0, 50]], "call_backward": [[50, 100]]}],
        {},
        [1],
    ),
    ("a device without ops", [line(), inversions(60, 60)], {}, [1, 2]),
    ("a device without anything", [line(60, 60), {}], {}, [2, 1]),
    (
        "copies that overlap",
        [
            NODE,
            {
                "call_forward": [[0, 10]],
                "call_backward": [[105, 115]],
                **inversions(60, 60),
            },
        ],
        {},
        [1, 2],
    ),
    (
        "the first iteration only",
        [
            NODE,
            {
                "call_forward": [[-60, -50]],
                "call_backward": [[150, 160]],
                **inversions(70),
            },
        ],
        {},
        [1, 1],
    ),
    (
        "after the data never",
        [
            NODE,
            {
                "call_forward": [[0, 5]],
                "call_backward": [[150, 160]],
                "cov_kron_B:m": [[0, 5]],
                "inv_kron_B:m": [[0, 65]],
            },
        ],
        {},
        None,
    ),
    (
        "room for one only",
        [
            NODE,
            {
                "call_forward": [[0, 50]],
                "call_backward": [[150, 200]],
                **inversions(30, 30),
            },
        ],
        {},
        None,
    ),
    ("a clock far ahead", [NODE, line(60, 60, at=-5000)], {}, [1, 2]),
    (
        "a clock far behind",
        [NODE, line(60, at=3000, **{"cov_kron_A:m0": [[0, 5]]})],
        {},
        [1, 31],
    ),
    (
        "tags of syncs",
        [
            line(**{"sync_kron_A:m": [[0, 5]]}),
            line(**{"sync_kron_A:m:up_pipe": [[0, 7]]}),
        ],
        {"sync_groups": [[0, 1]]},
        [1, 1],
    ),
    (
        "two syncs each",
        [
            line(**{"sync_kron_A:m": [[0, 5], [5, 50]]}),
            line(**{"sync_kron_A:m": [[0, 60], [0, 3]]}),
        ],
        {"sync_groups": [[0, 1]]},
        [2, 2],
    ),
    (
        "uneven syncs",
        [
            line(**{"sync_kron_A:m": [[0, 5], [5, 30]]}),
            line(**{"sync_kron_A:m": [[0, 7]]}),
        ],
        {"sync_groups": [[0, 1]]},
        [1, 1],
    ),
    (
        "meets a device without ops",
        [line(60, 60, **{"sync_kron_A:m": [[0, 5]]}), {"sync_kron_A:m": [[0, 5]]}],
        {"sync_groups": [[0, 1]]},
        [2, 2],
    ),
    ("one label twice", [{**NODE, "inv_kron_A:m": [[0, 60], [0, 60]]}], {}, [2]),
    (
        "names that look like copies",
        [
            {
                **NODE,
                "inv_kron_A:m@3": [[0, 30]],
                "inv_kron_A:call_forward#0@7": [[0, 3]],
            }
        ],
        {},
        [1],
    ),
    ("an empty group", [line(60), line(60, 60)], {"sync_groups": [[], [1]]}, [1, 2]),
    ("one hole exactly", [line(80)], {"margin_ratio": 0}, [1]),
    ("one tick too long", [line(81)], {"margin_ratio": 0}, None),
    ("the margin exactly", [line(64)], {"margin_ratio": 0.25}, None),
    ("just within the margin", [line(63)], {"margin_ratio": 0.25}, [1]),
    ("a huge margin", [line(1)], {"margin_ratio": 1000}, None),
    ("since 1970", [since_1970(line(60, 60)), since_1970(line(60))], {}, [2, 1]),
]


@pytest.mark.parametrize(
    ("lines", "fields", "fewest"),
    [case[1:] for case in VALID],
    ids=[c[0] for c in VALID],
)
def test_odd_but_valid_timelines(
    lines: list[dict[str, Any]], fields: dict[str, Any], fewest: list[int] | None
) -> None:
    made, result = optimum(lines, **fields)
    if fewest is None:
        assert result.status is Status.INFEASIBLE
        assert result.reason
        return
    assert result.status is Status.OPTIMAL
    assert result.iterations_of == fewest
    assert ppsolve.check(made, result) == []
    assert ppsolve.check(made, json.loads(result.model_dump_json())) == []
    for found in result.heuristics:
        shown = ppsolve.simulate(made, found.name)
        assert shown.status is found.status
        if found.status is HeuristicStatus.FEASIBLE:
            assert ppsolve.check(made, shown) == []
        elif found.status is HeuristicStatus.INFEASIBLE:
            assert isinstance(shown, RefreshEntry)
            apart = "sync_not_aligned" in (shown.breaks or {})
            assert apart if shown.schedule is None else ppsolve.check(made, shown)


def test_work_that_fits_nowhere_is_named() -> None:
    _, result = optimum([line(20), line(20, 78)])
    assert result.status is Status.INFEASIBLE
    assert "1/inv_kron_A:m1 takes 78 ns and fits into no hole" in str(result.reason)


def test_decimals_are_exact() -> None:
    tenths = {
        "call_forward": [[0.1, 1.1]],
        "call_backward": [[9.1, 10.1]],
        "inv_kron_A:m": [[0, 8]],
    }
    assert optimum([tenths], margin_ratio=0)[1].value == 1
    tenths["inv_kron_A:m"] = [[0, 8.000001]]
    assert optimum([tenths], margin_ratio=0)[1].status is Status.INFEASIBLE


def test_very_long_times_with_a_common_tick() -> None:
    unit = 10**11
    long = {k: [[a * unit, b * unit] for a, b in v] for k, v in line(60, 60).items()}
    made, result = optimum([long], tie_break="staleness")
    assert result.value == 2
    assert ppsolve.check(made, result) == []


def test_saved_memory_feasible_tight_and_not_at_all() -> None:
    busy = {**PIPE, "cov_kron_A:m": [[0, 10]], "cov_kron_B:m": [[0, 10]]}
    found = [
        optimum([busy], saved={"capacity": capacity})[1] for capacity in (4, 2, 1, 0.5)
    ]
    assert [result.status.value for result in found] == ["OPTIMAL"] * 3 + ["INFEASIBLE"]
    assert [result.peak_saved_of for result in found[2:3]] == [[1.0]]
    assert "capacity" in str(found[3].reason)


@pytest.mark.parametrize(
    ("lines", "fields", "message"),
    [
        ([{**NODE, "call_forward": [[0, 10], [5, 20]]}], {}, "overlap"),
        ([line(**{"inv_kron_A:m": [[5, 3]]})], {}, "at or after the start"),
        ([line()], {"margin_ratio": -0.05}, "margin_ratio"),
        ([line()], {"margin_ratio": "5%"}, "margin_ratio"),
        ([line()], {"sync_groups": [[0, 3]]}, "expected a device from 0 to 0, got 3"),
        ([line()], {"sync_groups": [[0, 0]]}, "named twice"),
        ([line(), line()], {"sync_groups": [[0, 1], [1]]}, "named twice"),
        ([line()], {"refresh_interval": 0}, "refresh_interval"),
        ([line()], {"objective": "makespan"}, "objective"),
        ([line()], {"pattern": "1f1b"}, "pattern"),
        ([line()], {"saved": {"capacity": [1, 2]}}, "saved.capacity"),
        ([line()], {"tie_break": "luck"}, "tie_break"),
        ([{"call_forward": [[0, 1]]}], {}, "call_backward"),
        ([{"call_backward": [[0, 1]]}], {}, "call_forward"),
        ([NODE, {"cov_kron_A:m": [[0, 3]]}], {}, "call_forward"),
        ([{**NODE, "call_forward": [[None, None]]}], {}, "null"),
        ([{**NODE, "cov_kron_A:m:up_pipe": [[0, 3]]}], {}, "got 0 on device 0"),
        (
            [{**PIPE, "call_backward": [[90, 100]], "cov_kron_B:m": [[0, 4]]}],
            {},
            "got 1 on device 0",
        ),
        (
            [NODE, line(at=3_000_000, **{"cov_kron_B:m": [[0, 5]]})],
            {},
            "10000 pipeline times",
        ),
    ],
)
def test_wrong_timelines_are_refused(
    lines: list[dict[str, Any]], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        optimum(lines, **fields)


def test_parity_needs_no_backward_for_every_forward() -> None:
    odd = {
        **PIPE,
        "call_backward": [[90, 100]],
        "cov_kron_A:m": [[0, 4]],
        "cov_kron_B:m": [[0, 4]],
    }
    made = KfacInstance.parse({"time_unit": "ns", "timelines": [odd]})
    assert ppsolve.simulate(made, "pipefisher").schedule is not None
    with pytest.raises(InputError):
        ppsolve.optimize(made, time_limit=1)


def test_the_same_answer_twice() -> None:
    rng = random.Random(5)
    for _ in range(6):
        made = KfacInstance.parse({"time_unit": "ns", "timelines": [timeline(rng, 6)]})
        texts = [
            ppsolve.optimize(made, deterministic=True, time_limit=5).model_dump()
            for _ in range(2)
        ]
        timed = {"wall_seconds": 0, "steps": ()}
        assert texts[0] | timed == texts[1] | timed


def test_no_time_at_all_still_gives_a_schedule_and_a_bound() -> None:
    made = KfacInstance.parse({"time_unit": "ns", "timelines": [{**PIPE, **WORK}]})
    result = ppsolve.optimize(made, time_limit=0)
    assert isinstance(result, RefreshResult)
    assert result.value is not None
    assert result.bound is not None
    assert result.bound <= 2 <= result.value
    assert ppsolve.check(made, result) == []
