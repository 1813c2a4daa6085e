"""``ppsolve plan init``: a request for a plan, written from the sizes of a model and a cluster."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import write_text
from ppsolve.models.documents.text import instance_text
from ppsolve.models.plan.scaffold import Sizes, plan_request
from ppsolve.solver.cli.guard import say

MODEL, STEP, CLUSTER = "Model", "Step", "Cluster"
of_model = partial(typer.Option, rich_help_panel=MODEL, metavar="N", show_default=False)
of_step = partial(typer.Option, rich_help_panel=STEP, show_default=False)
of_cluster = partial(typer.Option, rich_help_panel=CLUSTER, metavar="X", show_default=False)

Layers = Annotated[int, of_model("--layers", help="Transformer blocks.")]
Hidden = Annotated[int, of_model("--hidden", help="Hidden size.")]
Heads = Annotated[int, of_model("--heads", help="Attention heads.")]
Sequence = Annotated[int, of_model("--sequence-length", help="Tokens of a sample.")]
Vocabulary = Annotated[int, of_model("--vocabulary", help="Words.")]
Microbatches = Annotated[
    str, of_step("--microbatch-sizes", metavar="A,B", help="Samples of a micro-batch [1].")
]
Batch = Annotated[int, of_step("--batch-size", metavar="N", help="Samples of a step.")]
Tensor = Annotated[
    int, of_step("--tensor-parallel", metavar="T", help="Devices that share each layer [1].")
]
SharesSequences = Annotated[bool, of_step("--sequence-parallel", help="They share sequences too.")]
Again = Annotated[
    str, of_step("--recompute", metavar="HOW", help="none, selective or full [none].")
]
Devices = Annotated[int, of_cluster("--devices", help="All devices.")]
PerNode = Annotated[int | None, of_cluster("--devices-per-node", help="Of them in a node [all].")]
Memory = Annotated[float, of_cluster("--memory", help="Bytes of a device, 80e9.")]
Flops = Annotated[float, of_cluster("--flops", help="FLOP/s that a device achieves, 180e12.")]
Bandwidth = Annotated[float, of_cluster("--bandwidth", help="Bytes/s within a node, 200e9.")]
Between = Annotated[
    float | None, of_cluster("--node-bandwidth", help="Bytes/s of a device between nodes, 25e9.")
]
Latency = Annotated[float, of_cluster("--latency", help="Microseconds of a transfer [0].")]
Name = Annotated[str, typer.Option("--name", metavar="TEXT", help="Name of the request.")]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="- is stdout.")]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    summary = "Write a plan request from the sizes of a model."
    app.command("plan init", short_help=summary)(plan_init_command)


def plan_init_command(
    layers: Layers,
    hidden: Hidden,
    heads: Heads,
    sequence_length: Sequence,
    vocabulary: Vocabulary,
    batch_size: Batch,
    devices: Devices,
    memory: Memory,
    flops: Flops,
    bandwidth: Bandwidth,
    node_bandwidth: Between = None,
    devices_per_node: PerNode = None,
    latency: Latency = 0.0,
    microbatch_sizes: Microbatches = "1",
    tensor_parallel: Tensor = 1,
    sequence_parallel: SharesSequences = False,
    recompute: Again = "none",
    name: Name = "plan",
    output: Output = "-",
) -> None:
    """Write a plan request from the sizes of a decoder and a cluster.

    Times are operations over the rate that a device achieves, memory is counted by formula: replace
    what you have measured, then give the file to `ppsolve plan`.
    """
    given = {key: value for key, value in locals().items() if value is not None}
    request = plan_request(_sizes(given))
    write_text(output, instance_text(request))
    if output != "-":
        say(f"wrote {output} ({request.name})")


def _sizes(given: dict[str, Any]) -> Sizes:
    """Return checked sizes; errors name options."""
    del given["output"]
    try:
        given["microbatch_sizes"] = list(map(int, given["microbatch_sizes"].split(",")))
    except ValueError:
        text = given["microbatch_sizes"][:40]
        message = f'expected whole numbers with commas, got "{text}"'
        raise InputError(message, field="--microbatch-sizes") from None
    try:
        return Sizes.parse(given)
    except InputError as error:
        field, bracket, rest = (error.field or "").partition("[")
        option = f"--{field.replace('_', '-')}{bracket}{rest}"
        raise InputError(error.message, field=option) from None
