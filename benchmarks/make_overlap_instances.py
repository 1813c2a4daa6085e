"""Write the overlap instances again: ``python benchmarks/make_overlap_instances.py [DIR]``.

Training graphs of one rank as compilers see them: kernels, collectives and waits in program
order. Times are in microseconds and made up in realistic proportions, but for those in
`overlap/measured/`; bytes are in megabytes. Graphs called `compiled-*` are those of
`dump_inductor.py`, in bytes.
Without DIR the instances go where they are kept. Files that are not in the set are left alone.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from deepseek_block import (
    BETWEEN_LAYERS,
    BUSY,
    DEPS,
    LAYERS,
    MEASURED,
    NET,
    SPAN,
    program,
)
from shipped import ROOT, run_writer

from ppsolve.models.kinds.overlap.instance import OverlapInstance


class Program:
    """Nodes in program order; every collective gets its wait when it is first used.

    Parameters
    ----------
    name : str
        Name of the instance.
    **fields
        Further fields of the instance.
    """

    def __init__(self, name: str, **fields: Any) -> None:
        self.name, self.fields = name, fields
        self.nodes: list[dict[str, Any]] = []
        self.waits: dict[str, str] = {}

    def kernel(self, name: str, duration: int, *deps: str, size: int = 0) -> str:
        """Add a kernel that uses earlier nodes (collectives through their waits)."""
        used = [self._wait(dep) for dep in deps]
        self._add(name, "compute", duration, used, size)
        return name

    def collective(
        self,
        name: str,
        duration: int,
        *deps: str,
        kind: str,
        group: str | None = None,
        size: int = 0,
    ) -> str:
        """Add a collective."""
        used = [self._wait(dep) for dep in deps]
        self._add(name, "comm", duration, used, size, collective=kind, group=group)
        return name

    def finish(self) -> OverlapInstance:
        """Wait for what is left, and return the instance."""
        for node in list(self.nodes):
            if node["kind"] == "comm":
                self._wait(node["name"])
        return OverlapInstance.parse(
            {"name": self.name, "nodes": self.nodes, **self.fields}
        )

    def _wait(self, dep: str) -> str:
        owner = next(
            (node for node in reversed(self.nodes) if node["name"] == dep), None
        )
        if owner is None or owner["kind"] != "comm":
            return dep
        if dep not in self.waits:
            self.waits[dep] = f"wait_{dep}"
            self._add(self.waits[dep], "wait", 0, [dep], 0)
        return self.waits[dep]

    def _add(
        self,
        name: str,
        kind: str,
        duration: int,
        deps: list[str],
        size: int,
        **more: str | None,
    ) -> None:
        node = {
            "name": name,
            "kind": kind,
            "duration": duration,
            "deps": deps,
            "bytes": size,
        }
        self.nodes.append(
            {key: value for key, value in {**node, **more}.items() if value is not None}
        )


def every_instance() -> dict[str, OverlapInstance]:
    """Return the set: file name below the directory -> instance, named after its file."""
    made = [
        fsdp_forward("fsdp-forward-8l", 8, gather=90, kernel=120),
        fsdp_forward("fsdp-forward-8l-comm-bound", 8, gather=200, kernel=120),
        fsdp_forward(
            "fsdp-forward-8l-memory", 8, gather=90, kernel=120, max_live_bytes=40
        ),
        fsdp_forward(
            "fsdp-forward-8l-two-in-flight", 8, gather=90, kernel=120, max_in_flight=2
        ),
        fsdp_step("fsdp-step-6l", 6, gather=100, scatter=110, kernel=90),
        fsdp_step(
            "fsdp-step-6l-free", 6, gather=100, scatter=110, kernel=90, order="free"
        ),
        fsdp_step("fsdp-step-6l-comm-bound", 6, gather=220, scatter=240, kernel=90),
        fsdp_step(
            "fsdp-step-4l-memory",
            4,
            gather=100,
            scatter=110,
            kernel=90,
            max_live_bytes=70,
        ),
        tensor_parallel("tensor-parallel-6l", 6, 1),
        tensor_parallel("tensor-parallel-6l-two-microbatches", 6, 2),
        tensor_parallel("tensor-parallel-6l-two-microbatches-free", 6, 2, order="free"),
        tensor_parallel(
            "tensor-parallel-4l-three-microbatches-free", 4, 3, order="free"
        ),
        data_parallel("ddp-buckets-12l", 12, 3),
        mixture_of_experts("moe-4l-two-groups", 4),
        mixture_of_experts("moe-4l-two-groups-free", 4, order="free"),
        sharded_optimizer("zero-tail-8l", 8),
        sharded_optimizer("zero-tail-8l-free", 8, order="free"),
        weight_gradients("moe-wgrad-4l", 1),
        weight_gradients("moe-wgrad-4l-memory", 1, max_live_bytes=2293),
        weight_gradients(
            "moe-wgrad-4l-two-microbatches-memory", 2, max_live_bytes=2352
        ),
        uneven_fsdp("fsdp-large-1000", 84, "frozen", gather=170, seed=7),
        uneven_fsdp("fsdp-large-1000-free", 84, "free", gather=170, seed=7),
        compiled("fsdp-step"),
        compiled("fsdp-resharded-step", order="free"),
        compiled("tp-step"),
        compiled("moe-step"),
        compiled("moe-sharded-step"),
        compiled("moe-sharded-step", order="free"),
    ]
    found = {f"overlap/{instance.name}.json": instance for instance in made}
    kinds = {"span": (SPAN, SPAN), "busy": (BUSY, SPAN), "net": (BUSY, NET)}
    for name, (compute, communication) in kinds.items():
        block = deepseek_block(f"deepseek-block-{name}", compute, communication)
        found[f"overlap/measured/{block.name}.json"] = block
    return found


def compiled(name: str, order: str = "frozen") -> OverlapInstance:
    """Return a graph that torch compiled, with no more memory than as compiled."""
    dump = json.loads(
        (ROOT / "tests" / "data" / "inductor" / f"{name}.json").read_text()
    )
    suffix = "-free" if order == "free" else ""
    fields = {"name": f"compiled-{name}{suffix}", "collective_order": order}
    return OverlapInstance.parse(
        dump["graph"] | fields | {"max_live_bytes": dump["peak"]}
    )


def deepseek_block(name: str, compute: int, communication: int) -> OverlapInstance:
    """Return the measured block of DeepSeek's profile, see `deepseek_block.py`.

    Parameters
    ----------
    name : str
        Name of the instance.
    compute, communication : int
        Which of the measured times kernels and collectives have.

    Returns
    -------
    OverlapInstance
        The block in DeepSeek's order, its collectives free to change theirs.
    """
    block = Program(name, collective_order="free")
    for part, layer in program():
        deps = [f"{DEPS[part]}{layer}"] if DEPS[part] else []
        if part in BETWEEN_LAYERS and layer:
            deps = [f"{BETWEEN_LAYERS[part]}{layer - 1}"]
        times = MEASURED[part][layer]
        if part.startswith(("combine", "dispatch")):
            time = times[communication]
            block.collective(
                f"{part}{layer}", time, *deps, kind="all_to_all", group="ep"
            )
        else:
            block.kernel(f"{part}{layer}", times[compute], *deps)
    return block.finish()


def fsdp_forward(
    name: str, layers: int, *, gather: int, kernel: int, **fields: Any
) -> OverlapInstance:
    """Return a forward: each layer gathers its parameters, uses them three times, drops them."""
    program = Program(name, **fields)
    last = program.kernel("embed", kernel // 2, size=4)
    for layer in range(layers):
        shard = program.kernel(f"cast{layer}", 6, size=2)
        full = program.collective(
            f"gather{layer}", gather, shard, kind="all_gather", size=16
        )
        for part, share in (("attention", 2), ("mlp", 3), ("norm", 1)):
            last = program.kernel(
                f"{part}{layer}", kernel * share // 3, last, full, size=4
            )
    program.kernel("loss", kernel // 2, last)
    return program.finish()


def fsdp_step(
    name: str,
    layers: int,
    *,
    gather: int,
    scatter: int,
    kernel: int,
    order: str = "frozen",
    **fields: Any,
) -> OverlapInstance:
    """Return a forward and backward; parameters are gathered again, gradients reduce-scattered."""
    program = Program(name, collective_order=order, **fields)
    last = program.kernel("embed", kernel // 2, size=4)
    for layer in range(layers):
        full = program.collective(f"gather{layer}", gather, kind="all_gather", size=16)
        last = program.kernel(f"forward{layer}", kernel, last, full, size=6)
    last = program.kernel("loss", kernel // 2, last, size=4)
    for layer in reversed(range(layers)):
        full = program.collective(
            f"regather{layer}", gather, kind="all_gather", size=16
        )
        kept = f"forward{layer}"
        last = program.kernel(f"input_grad{layer}", kernel, last, full, kept, size=4)
        grad = program.kernel(f"weight_grad{layer}", kernel, last, kept, size=8)
        part = program.collective(
            f"scatter{layer}", scatter, grad, kind="reduce_scatter", size=2
        )
        program.kernel(f"step{layer}", 12, part)
    return program.finish()


def tensor_parallel(
    name: str, layers: int, microbatches: int, order: str = "frozen"
) -> OverlapInstance:
    """Return layers with two all-reduces, each between kernels of its own micro-batch."""
    program = Program(name, collective_order=order)
    for batch in range(microbatches):
        last = program.kernel(f"embed_{batch}", 40)
        for layer in range(layers):
            for part, time, reduce in (("attention", 110, 70), ("mlp", 140, 70)):
                kernel = program.kernel(f"{part}{layer}_{batch}", time, last)
                last = program.collective(
                    f"reduce_{part}{layer}_{batch}", reduce, kernel, kind="all_reduce"
                )
        program.kernel(f"head_{batch}", 60, last)
    return program.finish()


def data_parallel(name: str, layers: int, per_bucket: int) -> OverlapInstance:
    """Return a backward with gradient buckets, then an optimizer step per bucket."""
    program = Program(name)
    last = program.kernel("loss", 40)
    grads: list[str] = []
    buckets = []
    for layer in reversed(range(layers)):
        last = program.kernel(f"backward{layer}", 60 + 5 * (layer % 3), last)
        grads.append(last)
        if len(grads) == per_bucket:
            flat = program.kernel(f"flatten{layer}", 10, *grads)
            buckets.append(
                program.collective(f"reduce{layer}", 150, flat, kind="all_reduce")
            )
            grads = []
    for number, bucket in enumerate(buckets):
        program.kernel(f"step{number}", 25, bucket)
    return program.finish()


def mixture_of_experts(
    name: str, layers: int, order: str = "frozen"
) -> OverlapInstance:
    """Return all-to-alls of the experts beside gathers of the dense parameters, in two groups."""
    program = Program(name, collective_order=order)
    last = program.kernel("embed", 40)
    for layer in range(layers):
        dense = program.collective(
            f"gather{layer}", 80, kind="all_gather", group="data"
        )
        attention = program.kernel(f"attention{layer}", 90, last, dense)
        router = program.kernel(f"router{layer}", 15, attention)
        dispatch = program.collective(
            f"dispatch{layer}", 60, router, kind="all_to_all", group="expert"
        )
        shared = program.kernel(f"shared_expert{layer}", 70, attention)
        experts = program.kernel(f"experts{layer}", 110, dispatch)
        combine = program.collective(
            f"combine{layer}", 60, experts, kind="all_to_all", group="expert"
        )
        last = program.kernel(f"merge{layer}", 20, combine, shared)
    program.kernel("loss", 30, last)
    return program.finish()


TOKENS, FP8_COPIES, COPIES = 59, 235, 470
"""Megabytes of 4,096 tokens of 7,168 numbers: once in bfloat16; for 8 experts each, in 8 bits and
in bfloat16."""


def weight_gradients(name: str, microbatches: int, **fields: Any) -> OverlapInstance:
    """Return forwards and backwards of experts, each weight gradient right behind its input's.

    Parameters
    ----------
    name : str
        Name of the instance.
    microbatches : int
        Each runs forward, then backward, before the next one begins.
    **fields
        Further fields of the instance.

    Returns
    -------
    OverlapInstance
        Four layers with the measured times of DeepSeek's block, without waiting for peers. A weight
        gradient holds what it multiplies: the input of its layer, and the gradient of the output.
    """
    made = Program(name, collective_order="free", **fields)

    def kernel(part: str, layer: int, *deps: str, size: int = 0) -> str:
        return made.kernel(
            f"{part}{layer}{batch}", MEASURED[part][layer][BUSY], *deps, size=size
        )

    def exchange(part: str, layer: int, *deps: str, size: int) -> str:
        time = MEASURED[part][layer][NET]
        named = f"{part}{layer}{batch}"
        return made.collective(
            named, time, *deps, kind="all_to_all", group="ep", size=size
        )

    last: list[str] = []
    for number in range(microbatches):
        batch = f"_{number}" if microbatches > 1 else ""
        inputs: list[tuple[list[str], str, str]] = []
        for layer in range(LAYERS):
            attention = kernel("attn_f", layer, *last, size=TOKENS)
            sent = exchange("dispatch_f", layer, attention, size=FP8_COPIES)
            inputs.append((last, attention, sent))
            expert = kernel("mlp_f", layer, sent, size=COPIES)
            last = [exchange("combine_f", layer, expert, size=TOKENS)]
        for layer, (given, attention, sent) in enumerate(reversed(inputs)):
            grad = exchange("combine_b", layer, *last, size=COPIES)
            back = kernel("mlp_b", layer, grad, sent, size=COPIES)
            kernel("mlp_w", layer, grad, sent)
            grad = exchange("dispatch_b", layer, back, size=TOKENS)
            last = [kernel("attn_b", layer, grad, attention, size=TOKENS)]
            kernel("attn_w", layer, grad, *given)
    return made.finish()


def sharded_optimizer(name: str, layers: int, order: str = "frozen") -> OverlapInstance:
    """Return the tail of a step: gradients scattered, shards updated, parameters gathered."""
    program = Program(name, collective_order=order)
    last = program.kernel("loss", 50)
    norms = []
    shards = []
    for layer in reversed(range(layers)):
        last = program.kernel(f"backward{layer}", 80, last)
        shards.append(
            program.collective(f"scatter{layer}", 60, last, kind="reduce_scatter")
        )
    for number, shard in enumerate(shards):
        norms.append(program.kernel(f"norm{number}", 8, shard))
    clip = program.kernel("clip", 10, *norms)
    for number in range(len(shards)):
        step = program.kernel(f"step{number}", 30, clip)
        full = program.collective(f"gather{number}", 55, step, kind="all_gather")
        program.kernel(f"copy{number}", 12, full)
    return program.finish()


def uneven_fsdp(
    name: str, layers: int, order: str, *, gather: int, seed: int
) -> OverlapInstance:
    """Return an FSDP step with 12 nodes a layer, none of which is like another.

    Parameters
    ----------
    name : str
        Name of the instance.
    layers : int
        Number of layers.
    order : {"frozen", "free"}
        Order of the collectives.
    gather : int
        About how long a gather takes; at 170 a layer sends for some 540 and computes for 605.
    seed : int
        Seed of the times, which lie within a quarter of those written here.
    """
    draw = np.random.default_rng(seed)
    program = Program(name, collective_order=order)
    last = program.kernel("embed", 60)
    for layer in range(layers):
        full = program.collective(
            f"gather{layer}", about(draw, gather), kind="all_gather"
        )
        first = program.kernel(f"attention{layer}", about(draw, 70), last, full)
        last = program.kernel(f"mlp{layer}", about(draw, 90), first, full)
    last = program.kernel("loss", 80, last)
    for layer in reversed(range(layers)):
        full = program.collective(
            f"regather{layer}", about(draw, gather), kind="all_gather"
        )
        first = program.kernel(f"mlp_grad{layer}", about(draw, 160), last, full)
        last = program.kernel(f"attention_grad{layer}", about(draw, 120), first, full)
        weights = program.kernel(f"weight_grad{layer}", about(draw, 150), last)
        part = program.collective(
            f"scatter{layer}", about(draw, gather + 30), weights, kind="reduce_scatter"
        )
        program.kernel(f"step{layer}", about(draw, 15), part)
    return program.finish()


def about(draw: np.random.Generator, time: int) -> int:
    """Return a whole number within a quarter of `time`."""
    return int(draw.integers(time * 3 // 4, time * 5 // 4, endpoint=True))


if __name__ == "__main__":
    run_writer(__doc__, every_instance)
