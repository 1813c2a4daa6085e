"""Pipelines written out by hand, op by op, as graphs: nothing of the lowering is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.agreement.draws import Document, by_stage, is_split, num_stages


def devices_of(document: Document) -> list[int]:
    """Return the device of each stage, by the words of the placement."""
    count, placement = document["num_devices"], document["placement"]
    if isinstance(placement, dict):
        return list(placement["stage_to_device"])
    chunks = document.get("stages_per_device", 1)
    devices = []
    for chunk in range(chunks):
        row = list(range(count))
        is_back = placement == "vshape" and chunk % 2 == 1
        devices += reversed(row) if is_back else row
    return devices


class PipelineAsGraph:
    """Writes the graph of a pipeline with delays, memory, given modes, and alike micro-batches."""

    def __init__(self, document: Document, modes: Sequence[str] | None = None) -> None:
        self.document = document
        self.modes = modes or ["keep"] * num_stages(document)
        self.devices = devices_of(document)
        self.memory = document.get("memory")
        self.ops: dict[str, dict[str, Any]] = {}
        self.edges: list[dict[str, Any]] = []
        for stage in range(num_stages(document)):
            for microbatch in range(document["num_microbatches"]):
                self._add_passes(stage, microbatch)
            self._add_ending(stage)
        for stage in range(num_stages(document) - 1):
            for microbatch in range(document["num_microbatches"]):
                self._add_transfers(stage, microbatch)

    def written(self) -> Document:
        """Return the graph as a document."""
        resources = {name for op in self.ops.values() for name in op["resources"]}
        return {
            "kind": "graph",
            "resources": sorted(resources),
            "ops": list(self.ops.values()),
            "precedences": self.edges,
            "pools": self._pools(),
        }

    @property
    def backward(self) -> str:
        """Kind of the backward that hands the gradient on."""
        return "I" if is_split(self.document) else "B"

    def _op(self, name: str, duration: Any, resource: str) -> dict[str, Any]:
        op = {"id": name, "duration": duration, "resources": [resource]}
        self.ops[name] = op | {"acquire": {}, "release_at_end": {}}
        return self.ops[name]

    def _edge(self, before: str, after: str, lag: Any = 0) -> None:
        self.edges.append({"before": before, "after": after, "lag": lag})

    def _time(self, kind: str, stage: int) -> Any:
        return by_stage(self.document, self.document["times"][kind])[stage]

    def _add_passes(self, stage: int, microbatch: int) -> None:
        compute, end = f"compute{self.devices[stage]}", f"{stage}.{microbatch}"
        forward, backward = f"F{end}", f"{self.backward}{end}"
        self._op(forward, self._time("forward", stage), compute)
        if is_split(self.document):
            self._op(backward, self._time("backward_input", stage), compute)
            self._op(f"W{end}", self._time("backward_weight", stage), compute)
            self._edge(backward, f"W{end}")
        else:
            self._op(backward, self._time("backward", stage), compute)
        self._edge(forward, backward)
        if self.memory is not None:
            self._hold(stage, end)

    def _hold(self, stage: int, end: str) -> None:
        pool = f"memory{self.devices[stage]}"
        activation = by_stage(self.document, self.memory["activation"])[stage]
        forward, backward = self.ops[f"F{end}"], self.ops[f"{self.backward}{end}"]
        forward["acquire"][pool] = activation
        share = by_stage(
            self.document, self.memory.get("released_by_backward_weight", 1)
        )[stage]
        late = activation * share if is_split(self.document) else 0
        backward["release_at_end"][pool] = activation - late
        if is_split(self.document):
            self.ops[f"W{end}"]["release_at_end"][pool] = late
        mode = self.modes[stage]
        if mode == "offload":
            self._copy(stage, end, pool)
        elif mode != "keep":
            self._recompute(mode, stage, end, pool)

    def _recompute(self, mode: str, stage: int, end: str, pool: str) -> None:
        part = self.memory["recompute"]
        entry = next(each for each in part["modes"] if each["name"] == mode)
        activation = by_stage(self.document, self.memory["activation"])[stage]
        given_back = activation - by_stage(self.document, entry["held"])[stage]
        time = by_stage(self.document, entry["time"])[stage]
        self.ops[f"F{end}"]["release_at_end"][pool] = given_back
        backward = self.ops[f"{self.backward}{end}"]
        if part["place"] == "before_backward":
            backward["duration"] += time
            backward["acquire"][pool] = given_back
            return
        again = self._op(f"R{end}", time, f"compute{self.devices[stage]}")
        again["acquire"][pool] = given_back
        self._edge(f"F{end}", f"R{end}")
        self._edge(f"R{end}", backward["id"])

    def _copy(self, stage: int, end: str, pool: str) -> None:
        part, device = self.memory["offload"], self.devices[stage]
        way_back = f"back{device}" if part["duplex"] else f"out{device}"
        out = self._op(
            f"O{end}", by_stage(self.document, part["out"])[stage], f"out{device}"
        )
        back = self._op(
            f"L{end}", by_stage(self.document, part["back"])[stage], way_back
        )
        amount = by_stage(self.document, part["amount"])[stage]
        out["release_at_end"][pool] = amount
        back["acquire"][pool] = amount
        self._edge(f"F{end}", f"O{end}")
        self._edge(f"O{end}", f"L{end}")
        self._edge(f"L{end}", f"{self.backward}{end}")

    def _add_ending(self, stage: int) -> None:
        count, device = self.document["num_microbatches"], self.devices[stage]
        kind = "W" if is_split(self.document) else "B"
        last = [f"{kind}{stage}.{microbatch}" for microbatch in range(count)]
        for field, resource in (
            ("allreduce", f"comm{device}"),
            ("optimizer", f"compute{device}"),
        ):
            if field not in self.document:
                continue
            name = f"{field}{stage}"
            self._op(
                name, by_stage(self.document, self.document[field])[stage], resource
            )
            for op in last:
                self._edge(op, name)
            last = [name]

    def _add_transfers(self, stage: int, microbatch: int) -> None:
        here, there = f"{stage}.{microbatch}", f"{stage + 1}.{microbatch}"
        a, b = self.devices[stage], self.devices[stage + 1]
        self._edge(f"F{here}", f"F{there}", self._latency(a, b))
        self._edge(
            f"{self.backward}{there}", f"{self.backward}{here}", self._latency(b, a)
        )

    def _latency(self, sender: int, receiver: int) -> Any:
        latency = self.document.get("p2p", {}).get("latency", 0)
        if sender == receiver:
            return 0
        return latency[sender][receiver] if isinstance(latency, list) else latency

    def _pools(self) -> list[dict[str, Any]]:
        if self.memory is None:
            return []
        count, capacity = self.document["num_devices"], self.memory["capacity"]
        static = by_stage(self.document, self.memory.get("static", 0))
        return [
            {
                "name": f"memory{device}",
                "capacity": capacity[device]
                if isinstance(capacity, list)
                else capacity,
                "initial": sum(
                    s for s, d in zip(static, self.devices, strict=True) if d == device
                ),
            }
            for device in range(count)
        ]


def as_graph(document: Document, modes: Sequence[str] | None = None) -> Document:
    """Return the graph of a pipeline, its stages in these modes."""
    return PipelineAsGraph(document, modes).written()
