"""Passes of torch on graphs that it compiled: the same orders, the same bytes; rules by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.solver.kinds.overlap import overlap_scheduler
from ppsolve.solver.kinds.overlap.passes import MOVING, run_passes
from ppsolve.solver.kinds.overlap.replay import bytes_of_order, replay
from tests.kinds.overlap.cases import program, ticks
from tests.paths import DATA

FOLDER = DATA / "inductor"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
CHAINED = (
    "simple-overlap",
    "inductor-list-sink",
    "inductor-list-raise",
    "inductor-list-reorder",
)
"""Heuristics whose passes keep Inductor's chain of all collectives."""


def dump(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def chained(data: dict[str, Any]) -> OverlapInstance:
    nodes = [
        node | {"after": data["chain"].get(node["name"], [])}
        for node in data["graph"]["nodes"]
    ]
    return OverlapInstance.parse(data["graph"] | {"nodes": nodes})


def ordered(instance: OverlapInstance, name: str) -> list[str]:
    result = run_passes(instance, name)
    assert result.error is None
    assert result.order is not None
    return [instance.nodes[place].name for place in result.order]


def peak(instance: OverlapInstance, order: list[str]) -> int:
    places = [instance.index_of[name] for name in order]
    timed = replay(instance, places, ticks(instance))
    return int(bytes_of_order(instance, places, timed).peak)


@pytest.mark.parametrize("rule", ["frozen", "free"])
@pytest.mark.parametrize("name", NAMES)
def test_passes_move_as_those_of_torch(name: str, rule: str) -> None:
    data = dump(name)
    instance = OverlapInstance.parse(data["graph"] | {"collective_order": rule})
    for heuristic in MOVING:
        assert ordered(instance, heuristic) == data[rule][heuristic]["order"], heuristic


def test_passes_move_random_programs_as_those_of_torch() -> None:
    for number, data in enumerate(
        json.loads((FOLDER / "drawn" / "programs.json").read_text())
    ):
        for rule in ("frozen", "free"):
            instance = OverlapInstance.parse(data["graph"] | {"collective_order": rule})
            for heuristic, order in data[rule].items():
                assert ordered(instance, heuristic) == order, (number, rule, heuristic)


@pytest.mark.parametrize("name", NAMES)
def test_passes_keep_the_chain_as_those_of_torch(name: str) -> None:
    data = dump(name)
    for heuristic in CHAINED:
        assert (
            ordered(chained(data), heuristic) == data["frozen"][heuristic]["order"]
        ), heuristic


@pytest.mark.parametrize("name", NAMES)
def test_every_order_holds_the_bytes_that_torch_counts(name: str) -> None:
    data = dump(name)
    instance = OverlapInstance.parse(data["graph"])
    assert peak(instance, [node.name for node in instance.nodes]) == data["peak"]
    for each in (*data["frozen"].values(), *data["free"].values()):
        assert peak(instance, each["order"]) == each["peak"]


@pytest.mark.parametrize("name", NAMES)
def test_passes_keep_their_budget(name: str) -> None:
    data = dump(name)
    instance = OverlapInstance.parse(data["graph"])
    assert peak(instance, ordered(instance, "simple-overlap")) <= data["peak"]
    for heuristic in ("sink-waits-iterative", "reorder-communication"):
        assert 5 * peak(instance, ordered(instance, heuristic)) <= 6 * data["peak"]


def graphs() -> list[dict[str, Any]]:
    drawn = json.loads((FOLDER / "drawn" / "graphs.json").read_text())
    return [*map(dump, NAMES), *drawn]


@pytest.mark.parametrize("data", graphs())
def test_collectives_are_hidden_as_by_torch(data: dict[str, Any]) -> None:
    instance = OverlapInstance.parse(data["fx"])
    # Torch leaves the inputs where they were.
    found = [
        each for each in ordered(instance, "overlap-scheduler") if "arg" not in each
    ]
    assert found == [each for each in data["fx_order"] if "arg" not in each]


def layers(count: int, size: int, **fields: Any) -> OverlapInstance:
    """Return kernels of 10 that each use a gather of 10, whose buffer has `size`."""
    nodes: list[dict[str, Any]] = []
    buffers = []
    for at in range(count):
        nodes += [
            {
                "name": f"g{at}",
                "kind": "comm",
                "duration": 10,
                "collective": "all_gather",
            },
            {"name": f"w{at}", "kind": "wait", "deps": [f"g{at}"]},
            {"name": f"k{at}", "kind": "compute", "duration": 10, "category": "matmul"}
            | {"deps": [f"w{at}", *([f"k{at - 1}"] if at else [])]},
        ]
        buffers.append(
            {"bytes": size, "producer": f"g{at}", "users": [f"w{at}", f"k{at}"]}
        )
    return program(*nodes, buffers=buffers, **fields)


def test_a_wait_takes_its_light_users_along_but_no_matrix_product() -> None:
    nodes: list[dict[str, Any]] = [
        {"name": "g", "kind": "comm", "duration": 5},
        {"name": "w", "kind": "wait", "deps": ["g"]},
        {"name": "user", "kind": "compute", "duration": 1, "deps": ["w"]},
        {"name": "k", "kind": "compute", "duration": 5, "category": "matmul"},
    ]
    assert ordered(program(*nodes), "sink-waits-iterative") == ["g", "k", "w", "user"]
    nodes[2]["category"] = "matmul"
    assert ordered(program(*nodes), "sink-waits-iterative") == ["g", "w", "user", "k"]
    # Without any mark all kernels count as marked.
    del nodes[2]["category"], nodes[3]["category"]
    assert ordered(program(*nodes), "sink-waits-iterative") == ["g", "w", "user", "k"]


def test_reordering_stops_where_a_fifth_more_is_held() -> None:
    # Two gathers of 10 at once are 20, where the program holds 10.
    assert ordered(layers(3, 10), "reorder-communication") == ordered(
        layers(3, 10), "original"
    )
    # Beside an input of 100, 112 are held and 134 allowed: two gathers of 12, not three.
    instance = layers(3, 12)
    data = instance.model_dump(mode="json", exclude_none=True)
    data["buffers"].append({"bytes": 100, "users": ["k2"]})
    found = ordered(OverlapInstance.parse(data), "reorder-communication")
    assert found[:5] == ["g0", "g1", "w0", "k0", "g2"]


def test_only_a_free_order_lets_collectives_pass() -> None:
    nodes: list[dict[str, Any]] = [
        {"name": "k", "kind": "compute", "duration": 1},
        {"name": "a", "kind": "comm", "duration": 5, "deps": ["k"]},
        {"name": "b", "kind": "comm", "duration": 5},
        {"name": "wa", "kind": "wait", "deps": ["a"]},
        {"name": "wb", "kind": "wait", "deps": ["b"]},
    ]
    free = program(*nodes, collective_order="free")
    assert ordered(free, "reorder-communication")[:3] == ["b", "k", "a"]
    assert ordered(program(*nodes), "reorder-communication")[:3] == ["k", "a", "b"]
    assert ordered(free, "simple-overlap")[:3] == ["k", "a", "b"]


def test_prefetches_stay_within_memory() -> None:
    gib = overlap_scheduler.GIB
    # Beside a kernel of 10 the next gather of 10 is hidden: none of it is left for another.
    eager = ["g0", "w0", "g1", "k0", "w1", "g2", "k1", "w2", "k2"]
    assert ordered(layers(3, 1), "overlap-scheduler") == eager
    # Twice 1 GiB are 1 GiB more than the program holds, which is allowed; twice 2 GiB are not.
    assert ordered(layers(3, gib), "overlap-scheduler") == eager
    as_compiled = [node.name for node in layers(3, gib).nodes]
    assert ordered(layers(3, 2 * gib), "overlap-scheduler") == as_compiled


def test_scatters_that_no_kernel_needs_start_in_place() -> None:
    nodes: list[dict[str, Any]] = []
    for at in range(3):
        before = [f"k{at - 1}"] if at else []
        nodes += [
            {
                "name": f"k{at}",
                "kind": "compute",
                "duration": 9,
                "category": "matmul",
                "deps": before,
            },
            {
                "name": f"s{at}",
                "kind": "comm",
                "duration": 5,
                "collective": "reduce_scatter",
            }
            | {"deps": [f"k{at}"]},
            {"name": f"w{at}", "kind": "wait", "deps": [f"s{at}"]},
        ]
    # Each kernel hides the scatter before it; waits stand behind scatters in the queue.
    found = ordered(program(*nodes), "overlap-scheduler")
    assert found == ["k0", "s0", "k1", "s1", "k2", "s2", "w0", "w1", "w2"]


def test_a_graph_without_collectives_stays() -> None:
    instance = program(
        {"name": "b", "kind": "compute", "duration": 1},
        {"name": "a", "kind": "compute", "duration": 1},
    )
    for heuristic in (*MOVING, "simple-overlap", "overlap-scheduler"):
        assert ordered(instance, heuristic) == ["b", "a"]
