"""What a program of kernels and collectives becomes: moments of no length, order, alike parts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import Status
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.lowering import (
    LoweredOverlap,
    alike_parts,
    lower_overlap,
)
from tests.kinds.overlap.bruteforce import Document, optimum, program


def broken(document: Document, **starts: float) -> list[str]:
    """Return the rules that a bare schedule with these starts breaks."""
    length = {node["name"]: node.get("duration", 0) for node in document["nodes"]}
    ops: list[dict[str, Any]] = [
        {
            "id": name.replace("_", ":"),
            "start": start,
            "end": start + length.get(name, 0),
        }
        for name, start in starts.items()
    ]
    found = ppsolve.check(
        OverlapInstance.parse(document), {"time_unit": "us", "ops": ops}
    )
    return [violation.rule for violation in found]


# Moments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "rules"), [(0, []), (3, ["overlap"]), (5, []), (9, [])]
)
def test_a_kernel_of_no_length_runs_inside_no_other(
    start: float, rules: list[str]
) -> None:
    assert broken(program("k1 5", "k0 0"), k1=0, k0=start) == rules


@pytest.mark.parametrize(
    ("start", "rules"), [(0, []), (3, ["overlap"]), (5, []), (9, [])]
)
def test_a_collective_of_no_length_runs_inside_none_of_its_group(
    start: float, rules: list[str]
) -> None:
    document = program("c1 5", "c0 0", "w1 <- c1", "w0 <- c0", collective_order="free")
    assert broken(document, c1=0, c0=start, w1=5, w0=9) == rules
    document["nodes"][1]["group"] = "other"
    assert broken(document, c1=0, c0=start, w1=5, w0=9) == []


def test_a_wait_that_a_collective_uses_or_a_cap_counts_is_inside_no_kernel() -> None:
    nodes = ("k 9", "c0 2", "w0 <- c0", "c1 2 g=x <- w0", "w1 <- c1")
    assert broken(program(*nodes), k=0, c0=0, w0=2, c1=2, w1=9) == ["overlap"]
    assert broken(program(*nodes), k=0, c0=0, w0=9, c1=9, w1=11) == []
    plain = ("k 9", "c0 2", "w0 <- c0")
    assert broken(program(*plain), k=0, c0=0, w0=2) == []
    assert broken(program(*plain, max_live_bytes=9), k=0, c0=0, w0=2) == ["overlap"]
    capped = program(*plain, max_in_flight=1)
    assert broken(capped, k=0, c0=0, w0=2, launch_c0=0) == ["overlap"]
    assert broken(capped, k=0, c0=0, w0=9, launch_c0=0) == []
    assert broken(capped, k=0, c0=3, w0=9, launch_c0=3) == ["overlap"]
    assert broken(capped, k=0, c0=3, w0=9, launch_c0=0) == []


def test_launches_of_a_group_keep_the_frozen_order() -> None:
    nodes = ("c0 2", "c1 2", "w0 <- c0", "w1 <- c1")
    starts = {"c0": 5, "c1": 7, "w0": 7, "w1": 9, "launch_c0": 4, "launch_c1": 3}
    assert broken(program(*nodes, max_in_flight=2), **starts) == ["precedence"]
    free = program(*nodes, max_in_flight=2, collective_order="free")
    assert broken(free, **starts) == []


# Orders --------------------------------------------------------------------------------------


def test_an_order_must_run_as_long_as_the_schedule_beside_it() -> None:
    document = program("c 4", "k 3", "w <- c")
    instance = OverlapInstance.parse(document)
    result = ppsolve.optimize(instance, workers=1, time_limit=20)
    assert result.value == 4
    data = json.loads(result.model_dump_json())
    assert ppsolve.check(instance, data) == []
    lazy = {"time_unit": "us", "ops": json.loads(json.dumps(data["schedule"]["ops"]))}
    for op in lazy["ops"]:
        if op["id"] in "cw":
            op |= {"start": op["start"] + 2, "end": op["end"] + 2}
    assert ppsolve.check(instance, lazy) == []
    for order in (["c", "k", "w"], ["c", "w", "k"]):
        found = ppsolve.check(instance, {"schedule": lazy, "order": order})
        runs = {"k": 4, "w": 7}[order[1]]
        text = f"the order runs in {runs} us, the schedule takes 6 us"
        assert [(v.rule, v.message) for v in found] == [("order", text)]


# Pools ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "pools"),
    [
        (("c0 1", "w0 <- c0"), ("in flight",)),
        (
            ("c0 1 g=x", "w0 <- c0", "c1 1 g=y", "w1 <- c1"),
            ("in flight x", "in flight y"),
        ),
    ],
)
def test_the_pool_of_a_cap_is_called_by_its_group_where_there_are_several(
    nodes: tuple[str, ...], pools: tuple[str, ...]
) -> None:
    problem = lower_overlap(OverlapInstance.parse(program(*nodes, max_in_flight=1)))
    assert tuple(pool.name for pool in problem.pools) == pools


# Alike parts ---------------------------------------------------------------------------------


def test_alike_parts_are_those_that_nothing_links_and_nothing_tells_apart() -> None:
    """Three micro-batches, the last with a longer collective."""
    nodes = (f"k{i} 1, c{i} {2 + i // 2} <- k{i}, w{i} <- c{i}" for i in range(3))
    document = program(*", ".join(nodes).split(", "), collective_order="free")
    (family,) = alike_parts(OverlapInstance.parse(document))
    assert family.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (
        alike_parts(OverlapInstance.parse(document | {"collective_order": "frozen"}))
        == []
    )


def test_parts_that_hold_unequal_bytes_are_not_alike() -> None:
    """Each large output has room for a small one beside it: the kernels run the other way round."""
    document = program(
        "k0 3 b=4", "c0 3 b=4", "w0 <- c0", "k1 3 b=1", "c1 3 b=1", "w1 <- c1",
        collective_order="free", max_live_bytes=5,
    )  # fmt: skip
    assert optimum(document).makespan == 6
    result = ppsolve.optimize(OverlapInstance.parse(document), workers=1, time_limit=20)
    assert (result.status, result.value, result.bound) == (Status.OPTIMAL, 6, 6)


# Ops that are added ---------------------------------------------------------------------------


def renamed(problem: Problem) -> Problem:
    return replace(
        problem, explicit_names={op: f"op {op}" for op in range(problem.num_ops)}
    )


def test_launches_and_releases_know_their_nodes_whatever_they_are_called() -> None:
    """w0 and w1 launch nothing; the bytes of k are freed behind both of its users."""
    instance = OverlapInstance.parse(
        program(
            "k 1 b=2", "c0 1 <- k", "c1 1 <- k", "w0 <- c0", "w1 <- c1",
            max_in_flight=1, max_live_bytes=9,
        )
    )  # fmt: skip
    lowered = LoweredOverlap.of(instance, renamed(lower_overlap(instance)))
    assert sorted(lowered.launch) == [1, 2]
    assert list(lowered.release) == [0]
    for collective, op in lowered.launch.items():
        assert op >= 5
        assert collective in lowered.problem.after[lowered.problem.before == op]
    (freed,) = lowered.release.values()
    assert set(lowered.problem.before[lowered.problem.after == freed]) == {1, 2}


def test_releases_of_buffers_know_their_buffers_whatever_they_are_called() -> None:
    buffers = [
        {"bytes": 1, "producer": "a", "users": ["b"]},
        {"bytes": 2, "producer": "a", "users": ["b", "c"]},
    ]
    nodes = [{"name": name, "kind": "compute", "duration": 1} for name in "abc"]
    data = {"kind": "overlap", "nodes": nodes, "buffers": buffers, "max_live_bytes": 9}
    instance = OverlapInstance.parse(data)
    lowered = LoweredOverlap.of(instance, renamed(lower_overlap(instance)))
    assert lowered.release == {1: 3}
