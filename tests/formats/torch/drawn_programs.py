"""Random programs, and what torch's own passes make of them, node by node.

Scheduler nodes are made up here and handed to the functions of torch/_inductor/comms.py; sizes of
buffers are their own. ``python -m tests.formats.torch.drawn_programs`` writes the kept ones anew.
"""

from __future__ import annotations

import json
import random
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.paths import DATA

KEPT = DATA / "inductor" / "drawn" / "programs.json"
SEEDS = (
    0,
    3,
    9,
    10,
    13,
    20,
    21,
    22,
    53,
    65,
    77,
    90,
    116,
    117,
    136,
    149,
    164,
    260,
    261,
    279,
    305,
)
"""Programs on which wrong counts of bytes lead to other orders, among others."""

SIZES = (1, 2, 5, 12, 30)
REORDER, SINK = "reorder_communication_preserving_peak_memory", "sink_waits_iterative"
RECIPES = {
    "sink-waits-iterative": [SINK],
    "reorder-communication": [REORDER],
    "inductor-recommended": [REORDER, SINK, REORDER],
    "simple-overlap": ["simple_overlap"],
}
PATCHED = {
    "contains_collective": lambda node, _=None: node.kind == "comm",
    "contains_wait": lambda node: node.kind == "wait",
    "contains_gemm_like": lambda node: node.matmul,
    "estimate_op_runtime": lambda _: 0.0,
}

Document = dict[str, Any]


@dataclass(eq=False)
class Buffer:
    """A buffer of torch's planning of memory."""

    name: str
    mpi_buffer: Any

    def get_name(self) -> str:
        return self.name


@dataclass(eq=False)
class Node:
    """As much of a scheduler node as passes look at."""

    name: str
    kind: str
    matmul: bool
    unmet_dependencies: list[Any]
    outputs: list[Buffer] = field(default_factory=list)
    node: None = None

    def get_name(self) -> str:
        return self.name

    def get_outputs(self) -> list[Buffer]:
        return self.outputs


def drawn(seed: int) -> Document:
    """Return a program of one buffer for each node that allocates, frozen order."""
    rng = random.Random(seed)
    nodes: list[Document] = []
    waiting: list[str] = []
    usable: list[str] = []
    for at in range(rng.randint(12, 36)):
        deps = rng.sample(usable, min(len(usable), rng.choice([0, 0, 1, 1, 2])))
        node: Document = {"name": f"n{at}", "duration": 1, "deps": deps}
        if rng.random() < 0.2:
            nodes.append(node | {"kind": "comm"})
            waiting.append(node["name"])
        else:
            matmul = {"category": "matmul"} if rng.random() < 0.15 else {}
            nodes.append(node | {"kind": "compute"} | matmul)
            usable.append(node["name"])
        if waiting and rng.random() < 0.3:
            name = f"w{at}"
            nodes.append({"name": name, "kind": "wait", "deps": [waiting.pop(0)]})
            user = {"name": f"u{at}", "duration": 1, "deps": [name], "kind": "compute"}
            nodes.append(user)
            usable += [name, user["name"]]
    nodes += [{"name": f"w{name}", "kind": "wait", "deps": [name]} for name in waiting]
    if not any(node.get("category") for node in nodes):
        # Without any mark all kernels would count as marked.
        nodes.append(
            {
                "name": "last",
                "kind": "compute",
                "duration": 1,
                "deps": [],
                "category": "matmul",
            }
        )
    return {"kind": "overlap", "nodes": nodes, "buffers": _buffers(rng, nodes)}


def _buffers(rng: random.Random, nodes: list[Document]) -> list[Document]:
    users: dict[str, list[str]] = {node["name"]: [] for node in nodes}
    for node in nodes:
        for dep in node["deps"]:
            users[dep].append(node["name"])
    buffers: list[Document] = [
        {
            "bytes": rng.choice(SIZES),
            "users": [node["name"] for node in rng.sample(nodes, 4)],
        }
        for _ in range(rng.randint(2, 10))
    ]
    for node in nodes:
        name = node["name"]
        if node["kind"] == "wait" or rng.random() < 0.15:
            continue
        # What a collective makes is held until the last user of its wait.
        held = list(users[name])
        if node["kind"] == "comm":
            held += [user for wait in held for user in users[wait]]
        kept = {"kept": True} if rng.random() < 0.15 else {}
        own = {"producer": name, "users": held or [name]}
        buffers.append({"bytes": rng.choice(SIZES), **own, **kept})
    return buffers


def scheduler_nodes(
    document: Document,
) -> tuple[list[Node], dict[str, Buffer], list[str]]:
    """Return made up nodes, the inputs that are freed, and what the graph returns."""
    nodes = {
        each["name"]: Node(
            each["name"],
            each["kind"],
            each.get("category") == "matmul",
            [SimpleNamespace(name=dep) for dep in each["deps"]],
        )
        for each in document["nodes"]
    }
    inputs, kept = {}, []
    for number, each in enumerate(document["buffers"]):
        producer = each.get("producer")
        own = [] if each["users"] == [producer] else each["users"]
        buffer = _buffer(
            producer or f"in{number}", each["bytes"], [nodes[name] for name in own]
        )
        if producer is None:
            inputs[buffer.name] = buffer
        else:
            nodes[producer].outputs.append(buffer)
        if each.get("kept"):
            kept.append(buffer.name)
    for name, node in nodes.items():
        if not node.outputs:
            users = [nodes[e["name"]] for e in document["nodes"] if name in e["deps"]]
            node.outputs.append(_buffer(name, 0, users))
    return list(nodes.values()), inputs, kept


def _buffer(name: str, size: int, users: list[Node]) -> Buffer:
    return Buffer(
        name, SimpleNamespace(size_alloc=size, size_free=size, succ_nodes=users)
    )


def torch_orders(document: Document) -> dict[str, dict[str, list[str]]]:
    """Return the orders of torch's passes, by rule for collectives and by heuristic."""
    from torch._inductor import comms, config_comms

    found: dict[str, dict[str, list[str]]] = {}
    for rule in ("frozen", "free"):
        found[rule] = {}
        for heuristic, passes in RECIPES.items():
            if not hasattr(comms, passes[0]):
                continue
            order, inputs, kept = scheduler_nodes(document)
            graph = SimpleNamespace(
                graph_inputs=inputs, get_output_names=lambda kept=kept: kept
            )
            names = PATCHED | {
                "V": SimpleNamespace(graph=graph),
                "get_freeable_input_buf": lambda *_, inputs=inputs: inputs,
            }
            with ExitStack() as stack:
                for name, value in names.items():
                    stack.enter_context(patch.object(comms, name, value))
                unsafe = {
                    "reorder_iterative_unsafe_collectives_reorder": rule == "free"
                }
                stack.enter_context(config_comms.patch(unsafe))
                for each in passes:
                    order = getattr(comms, each)(order)
            found[rule][heuristic] = [node.name for node in order]
    return found


def main() -> None:
    """Write the kept programs."""
    programs = [drawn(seed) for seed in SEEDS]
    kept = [{"graph": one, **torch_orders(one)} for one in programs]
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text("[" + ",\n".join(map(json.dumps, kept)) + "]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
