"""Write graphs as Inductor hands them to its overlap passes, and the orders that its passes give.

Runs on a CPU: tensors are fake, and so is the process group of 8 ranks. Run times are estimates
for kernels of 300 TFLOP/s and 2.5 TB/s, and collectives of 100 GB/s and 15 us::

    python benchmarks/dump_inductor.py tests/data/inductor
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch._inductor import comms, config, config_comms
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes import overlap_scheduling
from torch._inductor.fx_passes.overlap_scheduling import (
    OverlapScheduler,
    is_compute_node,
)
from torch._inductor.utils import contains_collective, contains_wait
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.flop_counter import flop_registry

from ppsolve.models.documents.files import write_text
from ppsolve.models.documents.text import instance_data
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.solver.formats.torch.overlap.graph import COLLECTIVES, CompiledGraph

RANKS, HIDDEN, TOKENS, LAYERS = 8, 2048, 4096, 4
REORDER, SINK = "reorder_communication_preserving_peak_memory", "sink_waits_iterative"
PASSES = {
    "sink-waits-iterative": (SINK,),
    "reorder-communication": (REORDER,),
    "inductor-recommended": (REORDER, SINK, REORDER),
    "simple-overlap": ("simple_overlap",),
    "inductor-list-sink": ("sink_waits",),
    "inductor-list-raise": ("raise_comms",),
    "inductor-list-reorder": ("reorder_compute_for_overlap",),
}
"""Passes of torch that each of our heuristics stands for."""

Dump = dict[str, Any]


class CapturedError(Exception):
    """Nothing more is wanted of a compilation."""


def microseconds(flops: float, touched: float, *, is_comm: bool) -> float:
    """Return the estimated run time of a node that touches so many bytes."""
    if is_comm:
        return round(15 + touched / 1e5, 3)
    return round(max(flops / 3e8, touched / 2.5e6), 3)


def of_scheduler_node(node: Any) -> float:
    """Return the run time of a scheduler node in ms, as the passes ask for it."""
    if contains_wait(node):
        return 0.0
    flops = sum(each.estimate_flops() or 0 for each in node.get_nodes())
    touched = node.get_read_write_buffers_sizes() or 0
    return microseconds(flops, touched, is_comm=contains_collective(node)) / 1e3


def of_fx_node(node: torch.fx.Node, size: int | None = None) -> float | None:
    """Return the run time of a node of an FX graph in us, whole so that sums are exact.

    A collective of size 0 tells its latency, which our instances do not have.
    """
    if size == 0:
        return 0.0
    if node.op != "call_function" or "wait_tensor" in str(node.target):
        return None
    values = [each.meta["val"] for each in (*node.all_input_nodes, node)]
    if getattr(node.target, "is_view", False) or not all(map(torch.is_tensor, values)):
        return None
    touched = sum(each.numel() * each.element_size() for each in values)
    flops = 0
    if is_compute_node(node):
        flops = flop_registry[node.target.overloadpacket](
            *values[:-1], out_val=values[-1]
        )
    return float(
        round(microseconds(flops, touched, is_comm="c10d" in str(node.target)))
    )


def fsdp(x: Any, *shards: Any, group: Any) -> Any:
    """Gather each layer's weight, run the layers."""
    for shard in shards:
        x = torch.relu(x @ funcol.all_gather_tensor_autograd(shard, 0, group))
    return (x,)


def resharded(x: Any, *shards: Any, group: Any) -> tuple[Any, ...]:
    """Run a step by hand that gathers each weight once more for its backward."""
    inputs, grads = [x], []
    for shard in shards:
        inputs.append(
            torch.relu(inputs[-1] @ funcol.all_gather_tensor(shard, 0, group))
        )
    grad = inputs[-1].sin()
    for shard, given, got in reversed(
        list(zip(shards, inputs, inputs[1:], strict=False))
    ):
        grad = grad * (got > 0)
        grads.append(funcol.reduce_scatter_tensor(given.t() @ grad, "sum", 0, group))
        grad = grad @ funcol.all_gather_tensor(shard, 0, group).t()
    return (grad, *grads)


def tensor_parallel(x: Any, *weights: Any, group: Any) -> Any:
    """Run two micro-batches through layers that end in an all-reduce."""
    parts = list(x.chunk(2))
    for first, second in zip(weights[::2], weights[1::2], strict=True):
        for at, part in enumerate(parts):
            inner = torch.relu(part @ first) @ second
            parts[at] = funcol.all_reduce(inner, "sum", group) + part
    return (torch.cat(parts),)


def experts(x: Any, *weights: Any, group: Any, shards: Any = None) -> Any:
    """Send tokens to experts and back, beside an expert that all tokens share.

    Weights are gathered first where there is a group of their shards.
    """
    for pair in zip(weights[::2], weights[1::2], strict=True):
        expert, shared = (
            each
            if shards is None
            else funcol.all_gather_tensor_autograd(each, 0, shards)
            for each in pair
        )
        sent = funcol.all_to_all_single_autograd(x, None, None, group)
        back = funcol.all_to_all_single_autograd(
            torch.relu(sent @ expert), None, None, group
        )
        x = back + torch.relu(x @ shared)
    return (x,)


def trained(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function's gradients of all its arguments, as one graph."""

    def step(*given: Any) -> Any:
        return torch.autograd.grad(forward(*given)[0].sum(), given)

    return step


def models() -> Iterator[tuple[str, Callable[..., Any], list[tuple[int, int]]]]:
    """Yield the graphs: name, function, shapes of its arguments."""
    group = dist.group.WORLD
    x, whole, shard = (TOKENS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN // RANKS, HIDDEN)
    split = [(HIDDEN, HIDDEN // 2), (HIDDEN // 2, HIDDEN)]
    for name, function, weights in (
        ("fsdp", fsdp, [shard] * LAYERS),
        ("tp", tensor_parallel, split * LAYERS),
        ("moe", experts, [whole] * 2 * LAYERS),
    ):
        forward = partial(function, group=group)
        yield f"{name}-forward", forward, [x, *weights]
        yield f"{name}-step", trained(forward), [x, *weights]
    both = partial(experts, group=dist.new_group(list(range(RANKS))), shards=group)
    yield "moe-sharded-step", trained(both), [x, *[shard] * 2 * LAYERS]
    yield "fsdp-resharded-step", partial(resharded, group=group), [x, *[shard] * LAYERS]


def dump_of(
    name: str, function: Callable[..., Any], shapes: Sequence[tuple[int, int]]
) -> Dump:
    """Return one graph, with what each pass makes of it."""
    found: Dump = {"torch": torch.__version__}
    mode = FakeTensorMode()
    with mode:
        given = [
            torch.empty(s, dtype=torch.bfloat16, requires_grad=True) for s in shapes
        ]
        graph = make_fx(function, decomposition_table=select_decomp_table())(*given)
        graph.graph.eliminate_dead_code()
    found["fx"], found["fx_order"] = scheduled(graph, name)

    def capture(nodes: list[Any]) -> list[Any]:
        compiled = CompiledGraph.of(nodes, "frozen")
        found["graph"] = instance_data(compiled.instance(of_scheduler_node, name, None))
        chained = CompiledGraph.of(nodes).instance(of_scheduler_node, name, None)
        found["chain"] = {node.name: node.after for node in chained.nodes if node.after}
        found["peak"] = compiled.peak(nodes)
        for rule, is_free in (("frozen", False), ("free", True)):
            config_comms.reorder_iterative_unsafe_collectives_reorder = is_free
            found[rule] = {
                heuristic: run(nodes, compiled, passes)
                for heuristic, passes in PASSES.items()
                if hasattr(comms, passes[0])
            }
        raise CapturedError

    config.reorder_for_compute_comm_overlap = True
    config.reorder_for_compute_comm_overlap_passes = [capture]
    config.estimate_op_runtime = of_scheduler_node
    try:
        with mode:
            compile_fx_inner(graph, given)
    except Exception:
        if "graph" not in found:
            raise
    return found


def run(nodes: list[Any], compiled: CompiledGraph, passes: Sequence[str]) -> Dump:
    """Return the order and the peak that passes give."""
    order = list(nodes)
    for each in passes:
        order = getattr(comms, each)(order)
    return {"order": [node.get_name() for node in order], "peak": compiled.peak(order)}


def scheduled(graph: torch.fx.GraphModule, name: str) -> tuple[Dump, list[str]]:
    """Return an FX graph as an instance, and the order that OverlapScheduler gives it."""
    from torch._inductor.comm_analysis import (
        estimate_fx_collective_memory_footprint as footprint,
    )

    nodes: list[Dump] = []
    for node in graph.graph.nodes:
        word = str(node.target)
        kind = (
            "wait" if "wait_tensor" in word else "comm" if "c10d" in word else "compute"
        )
        found = {
            "name": node.name,
            "kind": kind,
            "deps": [d.name for d in node.all_input_nodes],
        }
        if kind != "wait":
            found["duration"] = of_fx_node(node) or 0
        if kind == "comm":
            known = (each for each in COLLECTIVES if each in word)
            group = overlap_scheduling.get_group_name(node)
            found |= {
                "bytes": footprint(node),
                "collective": next(known, "other"),
                "group": group,
            }
        elif node.op == "call_function" and is_compute_node(node):
            found["category"] = "matmul"
        nodes.append(found)
    instance = OverlapInstance.parse(
        {"name": name, "collective_order": "free", "nodes": nodes}
    )
    copy = torch.fx.GraphModule(graph, graph.graph.__deepcopy__({}))
    # Its own estimate knows no CPU.
    with patch.object(
        overlap_scheduling, "estimate_roofline_runtime_ms", lambda _: 0.0
    ):
        OverlapScheduler(
            copy,
            max_in_flight_gb=5,
            max_compute_pre_fetch=200,
            collective_bucketing=False,
            insert_overlap_deps=False,
            compute_overlap_multipler=1.0,
            max_coll_distance=200,
            custom_runtime_estimation=of_fx_node,
            compute_estimator="analytical",
            prioritize_bucketing_during_scheduling=False,
            max_off_bucket_gb=None,
        ).run()
    return instance_data(instance), [node.name for node in copy.graph.nodes]


def main() -> None:
    """Write a file for each graph."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+")
    options = parser.parse_args()
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    for name, function, shapes in models():
        if options.only is None or name in options.only:
            dump = dump_of(name, function, shapes)
            write_text(options.folder / f"{name}.json", json.dumps(dump) + "\n")
            print(name, len(dump["graph"]["nodes"]), "nodes")


if __name__ == "__main__":
    main()
