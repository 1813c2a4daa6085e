"""The published passes on small graphs: inputs, expected results, and random programs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from ppsolve.models.kinds.overlap.instance import OverlapInstance
from tests.paths import DATA

FOLDER = DATA / "overlap"
NAMES = sorted(
    path.name.removesuffix(".expected.json") for path in FOLDER.glob("*.expected.json")
)
NAMINGS = ("given_names", "buf_names")

HEURISTICS = {
    "original": "original",
    "sink_waits": "sink-waits",
    "raise_comms": "raise-comms",
    "reorder_compute_for_overlap": "reorder-compute",
    "default_pipeline": "inductor-default",
    "test_pipeline": "inductor-tests",
    "new_sink_waits": "inductor-list-sink",
    "new_raise_comms": "inductor-list-raise",
    "new_reorder_compute_for_overlap": "inductor-list-reorder",
}


@dataclass(frozen=True)
class Case:
    """A graph under one naming; expected orders use the given names under both."""

    instance: OverlapInstance
    given: list[str]
    expected: dict[str, Any]

    def places(self, order: list[str]) -> list[int]:
        return [self.given.index(name) for name in order]


def case(name: str, naming: str = "given_names") -> Case:
    data = json.loads((FOLDER / f"{name}.json").read_text())
    expected = json.loads((FOLDER / f"{name}.expected.json").read_text())
    instance = program(*data["nodes"], time_unit=data["unit"])
    given = [node["name"] for node in data["nodes"]]
    return Case(
        renamed(instance) if naming == "buf_names" else instance,
        given,
        expected[naming],
    )


def program(*nodes: dict[str, Any], **fields: Any) -> OverlapInstance:
    return OverlapInstance.parse({"kind": "overlap", "nodes": list(nodes), **fields})


def renamed(
    instance: OverlapInstance, names: list[str] | None = None
) -> OverlapInstance:
    """Return the same graph under other names, ``buf<place>`` unless given."""
    fresh = names or [f"buf{place}" for place in range(len(instance.nodes))]
    data = instance.model_dump(mode="json", exclude_none=True)
    for place, node in enumerate(data["nodes"]):
        node["name"] = fresh[place]
        node["deps"] = [fresh[dep] for dep in instance.deps[place]]
    return OverlapInstance.parse(data)


def ticks(instance: OverlapInstance) -> list[int]:
    return [int(node.duration) for node in instance.nodes]


@st.composite
def programs(draw: st.DrawFn, most: int = 14, **fields: Any) -> OverlapInstance:
    """Draw a program with up to three groups, waits that anything uses, and zero durations."""
    nodes: list[dict[str, Any]] = []
    unwaited: list[str] = []
    for place in range(draw(st.integers(0, most))):
        kind = draw(
            st.sampled_from(["compute", "comm", *["wait"] * (2 if unwaited else 0)])
        )
        usable = [node["name"] for node in nodes if node["kind"] != "comm"]
        deps = (
            draw(st.lists(st.sampled_from(usable), max_size=3, unique=True))
            if usable
            else []
        )
        node = {
            "name": f"{draw(st.sampled_from('zma'))}{place}",
            "kind": kind,
            "deps": deps,
        }
        if kind == "wait":
            extra = deps[: draw(st.sampled_from([0, 0, 1]))]
            node["deps"] = [
                unwaited.pop(draw(st.integers(0, len(unwaited) - 1))),
                *extra,
            ]
        else:
            node["duration"] = draw(st.integers(0, 9))
            node["bytes"] = draw(st.integers(0, 4))
        if kind == "comm":
            node["group"] = draw(st.sampled_from("abc"))
            unwaited.append(node["name"])
        nodes.append(node)
    nodes += [
        {"name": f"w_{comm}", "kind": "wait", "deps": [comm]} for comm in unwaited
    ]
    order = draw(st.sampled_from(["frozen", "free"]))
    return program(*nodes, **{"collective_order": order, **fields})
