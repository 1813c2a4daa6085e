"""The scheduler nodes of a graph that Inductor compiles, as an overlap instance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from ppsolve.models.kinds.overlap.instance import MATMUL, OverlapInstance

KNOWN_OPS = ("aten", "prims", "inductor", "quantized", "_quantized", "rngprims")
"""Namespaces of fallback kernels that run no collective of their own."""

COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast")
WAIT = "wait"

Collectives = Literal["chained", "frozen", "free"]
"""Whether collectives keep one order of all, one per group, or get a new one per group."""

Durations = Callable[[Any], float]
"""Takes a scheduler node, returns its run time in ms."""


@dataclass(frozen=True)
class CompiledGraph:
    """The scheduler nodes of one graph, in the order in which Inductor hands them to a pass.

    Fields and rules are those of torch/_inductor/scheduler.py, memory.py and comms.py, torch 2.13:
    a fake weak dependency chains all collectives, the memory of a buffer is freed behind its last
    user, what a node mutates belongs to the buffer that it was made as.
    """

    nodes: Sequence[Any]  # torch._inductor.scheduler.BaseSchedulerNode
    inputs: frozenset[str]  # names of the graph's inputs
    outputs: frozenset[str]  # names of what it returns
    collectives: Collectives = "chained"

    @classmethod
    def of(
        cls, nodes: Sequence[Any], collectives: Collectives = "chained"
    ) -> CompiledGraph:
        """Read the graph that is being compiled.

        Inductor's one order of the collectives of all groups is kept, or the order within each
        group, or none.
        """
        from torch._inductor.virtualized import V

        inputs = frozenset(V.graph.graph_inputs.keys())
        return cls(nodes, inputs, frozenset(V.graph.get_output_names()), collectives)

    @cached_property
    def makers(self) -> dict[str, Any]:
        """The node that makes each buffer, by the buffer's name."""
        return {name: node for node in self.nodes for name in node.get_buffer_names()}

    @cached_property
    def has_collectives(self) -> bool:
        """Whether there is anything to overlap."""
        from torch._inductor.utils import contains_collective

        return any(map(contains_collective, self.nodes))

    def peak(self, order: Sequence[Any]) -> int:
        """Return the peak memory of an order of the nodes in bytes, as Inductor estimates it."""
        from torch._inductor import memory
        from torch.utils._ordered_set import OrderedSet

        freeable = memory.get_freeable_input_buf(list(order), OrderedSet(self.inputs))
        estimate = memory.estimate_peak_memory_allocfree(
            list(order), freeable, OrderedSet(self.outputs)
        )
        return int(estimate[0])

    def broken(self, order: Sequence[Any], cap: float | None = None) -> str | None:
        """Return the first rule that an order breaks, or None; Inductor itself checks nothing.

        Each node stands there once, behind every real, weak and fake dependency, and memory stays
        below the cap, in bytes by Inductor's own estimate.
        """
        if len(order) != len(self.nodes) or {*map(id, order)} != {*map(id, self.nodes)}:
            return "it does not hold every node once"
        position = {id(node): turn for turn, node in enumerate(order)}
        for node in order:
            for dep, _ in self._dependencies(node):
                if position[id(dep)] > position[id(node)]:
                    return f"{node.get_name()} comes before {dep.get_name()}, which it depends on"
        latest: dict[str, int] = {}
        for node in self.nodes if self.collectives != "free" else ():
            for group in self._groups(node):
                if position[id(node)] < latest.get(group, -1):
                    return f"{node.get_name()} passes another collective of its group"
                latest[group] = position[id(node)]
        if cap is not None and (peak := self.peak(order)) > cap:
            return f"it holds {peak} bytes, {cap:.0f} are allowed"
        return None

    def _dependencies(self, node: Any) -> Iterator[tuple[Any, bool]]:
        """Yield what a node depends on, and whether only the chain of collectives says so."""
        from torch._inductor.dependencies import WeakDep

        for dep in node.unmet_dependencies:
            maker = self.makers.get(dep.name)
            is_fake = isinstance(dep, WeakDep) and bool(getattr(dep, "is_fake", False))
            if is_fake and self.collectives != "chained":
                continue
            if (
                maker is not None
                and maker is not node
                and (not is_fake or self.collectives == "chained")
            ):
                yield maker, is_fake

    def _groups(self, node: Any) -> list[str]:
        """Return the process groups of the collectives in a node."""
        from torch._inductor.utils import is_collective

        kernels = [inner.node for inner in node.get_nodes()]
        return [_group_of(kernel) for kernel in kernels if is_collective(kernel)]

    def instance(
        self, durations: Durations, name: str, cap: float | None
    ) -> OverlapInstance:
        """Return the graph as an overlap instance: node i has the name of scheduler node i.

        A collective that nobody waits for has a wait of its own behind all nodes. `durations` gives
        the run time of each node in ms, `cap` is the most bytes at once, as Inductor counts them;
        times are us.
        """
        nodes = [self._node(node, durations) for node in self.nodes]
        self._pair_waits(nodes)
        self._add_barriers(nodes)
        fields: dict[str, Any] = {
            "name": name,
            "nodes": nodes,
            "buffers": list(self._buffers()),
        }
        if cap is not None:
            fields["max_live_bytes"] = max(1, math.floor(cap))
        if self.collectives == "free":
            fields["collective_order"] = "free"
        return OverlapInstance.parse({"kind": "overlap", "time_unit": "us", **fields})

    def _node(self, node: Any, durations: Durations) -> dict[str, Any]:
        from torch._inductor import comms
        from torch._inductor.utils import contains_collective, contains_wait

        entry: dict[str, Any] = {"name": node.get_name(), "kind": "compute"}
        deps = dict(self._dependencies(node))
        real = {
            dep.get_name() for dep, is_fake in self._dependencies(node) if not is_fake
        }
        entry["deps"] = [dep.get_name() for dep in deps if dep.get_name() in real]
        entry["after"] = [dep.get_name() for dep in deps if dep.get_name() not in real]
        if contains_collective(node) and not contains_wait(node):
            kernels = [str(inner.node.python_kernel_name) for inner in node.get_nodes()]
            groups = self._groups(node)
            entry |= {"kind": "comm", "group": groups[0] if groups else "0"}
            words = (
                word
                for word in COLLECTIVES
                if any(word in kernel for kernel in kernels)
            )
            entry["collective"] = next(words, "other")
        elif contains_wait(node) and not contains_collective(node):
            return entry | {"kind": WAIT}
        elif comms.contains_gemm_like(node):
            entry["category"] = MATMUL
        entry["duration"] = round(max(0.0, durations(node)) * 1e3, 3)
        if entry["kind"] == "comm":
            entry["duration"] = max(entry["duration"], 0.001)
        return entry

    def _pair_waits(self, nodes: list[dict[str, Any]]) -> None:
        """Let every collective have one wait: others of it are kernels of no length."""
        kind = {node["name"]: node["kind"] for node in nodes}
        waited: set[str] = set()
        for node in nodes:
            if node["kind"] != WAIT:
                continue
            comms = [dep for dep in node["deps"] if kind[dep] == "comm"]
            if len(comms) == 1 and comms[0] not in waited:
                waited.add(comms[0])
            else:
                node |= {"kind": "compute", "duration": 0}
        for name in kind:
            if kind[name] == "comm" and name not in waited:
                nodes.append({"name": f"{WAIT}:{name}", "kind": WAIT, "deps": [name]})

    def _add_barriers(self, nodes: list[dict[str, Any]]) -> None:
        """Keep every node on its side of a kernel that may run collectives unseen."""
        last: str | None = None
        since: list[str] = []
        for node, entry in zip(self.nodes, nodes, strict=False):
            if last is not None:
                entry["after"].append(last)
            if _is_barrier(node):
                entry["after"] += since
                last, since = entry["name"], []
            else:
                since.append(entry["name"])
        for entry in nodes:
            entry["after"] = sorted(set(entry.get("after", [])) - set(entry["deps"]))

    def _buffers(self) -> Iterator[dict[str, Any]]:
        """Yield what is allocated and freed, as ``compute_memory_timeline`` of memory.py does."""
        from torch._inductor import memory
        from torch.utils._ordered_set import OrderedSet

        freeable = memory.get_freeable_input_buf(
            list(self.nodes), OrderedSet(self.inputs)
        )
        for name, buffer in freeable.items():
            yield self._buffer(name, buffer.mpi_buffer.size_free, buffer, None)
        unassigned = {
            id(node): sum(buffer.mpi_buffer.size_alloc for buffer in node.get_outputs())
            for node in self.nodes
        }
        for node in self.nodes:
            for buffer in node.get_outputs():
                size, maker = buffer.mpi_buffer.size_free, node
                if buffer.mpi_buffer.size_alloc == 0 and size:
                    # One of several outputs of a kernel, which allocates them all.
                    makers = (
                        dep
                        for dep, _ in self._dependencies(node)
                        if unassigned[id(dep)] >= size
                    )
                    maker = next(makers)
                unassigned[id(maker)] -= size
                entry = self._buffer(buffer.get_name(), size, buffer, maker.get_name())
                entry["users"] = entry["users"] or [node.get_name()]
                if size:
                    yield entry
        for node in self.nodes:
            if unassigned[id(node)]:
                yield {
                    "bytes": unassigned[id(node)],
                    "producer": node.get_name(),
                    "kept": True,
                }

    def _buffer(
        self, name: str, size: int, buffer: Any, producer: str | None
    ) -> dict[str, Any]:
        users = [user.get_name() for user in buffer.mpi_buffer.succ_nodes]
        entry = {"bytes": size, "users": users, "kept": name in self.outputs}
        return entry if producer is None else {**entry, "producer": producer}


def _group_of(kernel: Any) -> str:
    texts = (
        str(argument)
        for argument in reversed(list(kernel.constant_args))
        if isinstance(argument, str)
    )
    return next(texts, "0")


def _is_barrier(node: Any) -> bool:
    """Whether a node runs code that Inductor cannot look into, which may hold collectives."""
    from torch._inductor import ir
    from torch._inductor.utils import contains_collective, contains_wait

    if contains_collective(node) or contains_wait(node):
        return bool(contains_collective(node) and contains_wait(node))
    for inner in node.get_nodes():
        if isinstance(inner.node, ir.FallbackKernel):
            namespace = str(getattr(inner.node.op_overload, "namespace", ""))
            if namespace not in KNOWN_OPS:
                return True
    return False
