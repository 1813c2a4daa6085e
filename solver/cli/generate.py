"""``ppsolve generate``: instance files from options, published profiles or a seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import write_text
from ppsolve.models.documents.text import instance_text
from ppsolve.solver.cli.guard import say
from ppsolve.solver.generate.flags import read_options
from ppsolve.solver.generate.instances import generate

Text = str | None
WHAT, SHAPE, TIMES = "What to generate", "Shape", "Times (number, list a,b,c or range 50..150)"
TRANSFERS, MEMORY = "Transfers", "Memory"


def _option(name: str, panel: str, text: str, *aliases: str, metavar: str = "TEXT") -> Any:
    return typer.Option(name, *aliases, help=text, rich_help_panel=panel, metavar=metavar)


Output = Annotated[
    str, _option("--output", WHAT, "File to write; - is stdout.", "-o", metavar="FILE")
]
Seed = Annotated[int | None, typer.Option(help="Draw from this seed.", min=0, rich_help_panel=WHAT)]
AtRandom = Annotated[
    bool, typer.Option("--random", help="Draw times; seed 0 if none.", rich_help_panel=WHAT)
]
Profile = Annotated[Text, _option("--profile", WHAT, "Published times: 1.5b, 6.2b, zb-16x48-a ...")]
Name = Annotated[Text, _option("--name", WHAT, "Name of the instance.")]
Objective = Annotated[Text, _option("--objective", WHAT, "makespan or device_span.")]
TimeUnit = Annotated[Text, _option("--time-unit", WHAT, "Unit of all times.")]
Devices = Annotated[
    Text, _option("--devices", SHAPE, "Devices, or a range 4..8.", "--num-devices", "-p")
]
Microbatches = Annotated[
    Text,
    _option("--microbatches", SHAPE, "Micro-batches, or a range.", "--num-microbatches", "-m"),
]
Unequal = Annotated[
    Text, _option("--unequal", SHAPE, "Draw lengths of micro-batches: 0.6, or 0.6:normal.")
]
Placement = Annotated[
    Text, _option("--placement", SHAPE, "linear, interleaved, ..., or devices 0,1,1,0.")
]
StagesPerDevice = Annotated[
    int | None, typer.Option(help="Stages of each device.", rich_help_panel=SHAPE)
]
Forward = Annotated[Text, _option("--forward", TIMES, "Forward.")]
Backward = Annotated[Text, _option("--backward", TIMES, "Full backward.")]
BackwardInput = Annotated[Text, _option("--backward-input", TIMES, "Input-gradient backward.")]
BackwardWeight = Annotated[Text, _option("--backward-weight", TIMES, "Weight-gradient backward.")]
Allreduce = Annotated[Text, _option("--allreduce", TIMES, "Gradient all-reduce.")]
Optimizer = Annotated[Text, _option("--optimizer", TIMES, "Optimizer step.")]
P2p = Annotated[Text, _option("--p2p", TRANSFERS, "Latency.", "--p2p-latency")]
P2pMode = Annotated[Text, _option("--p2p-mode", TRANSFERS, "delay, link, nic or send_queue.")]
P2pBytes = Annotated[Text, _option("--p2p-bytes", TRANSFERS, "Bytes of a transfer.")]
Bandwidth = Annotated[Text, _option("--bandwidth", TRANSFERS, "Bytes per time unit.")]
Capacity = Annotated[
    Text, _option("--capacity", MEMORY, "Amount, list, 1.5p (activations), or none.")
]
Activation = Annotated[Text, _option("--activation", MEMORY, "Of one micro-batch.")]
Share = Annotated[
    Text, _option("--share", MEMORY, "Share held until W ends.", "--released-by-backward-weight")
]
Static = Annotated[Text, _option("--static", MEMORY, "Always in use, per stage.")]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("generate")(generate_command)


def generate_command(
    output: Output = "-",
    seed: Seed = None,
    random: AtRandom = False,
    profile: Profile = None,
    name: Name = None,
    objective: Objective = None,
    time_unit: TimeUnit = None,
    devices: Devices = None,
    microbatches: Microbatches = None,
    unequal: Unequal = None,
    placement: Placement = None,
    stages_per_device: StagesPerDevice = None,
    forward: Forward = None,
    backward: Backward = None,
    backward_input: BackwardInput = None,
    backward_weight: BackwardWeight = None,
    allreduce: Allreduce = None,
    optimizer: Optimizer = None,
    p2p: P2p = None,
    p2p_mode: P2pMode = None,
    p2p_bytes: P2pBytes = None,
    bandwidth: Bandwidth = None,
    capacity: Capacity = None,
    activation: Activation = None,
    share: Share = None,
    static: Static = None,
) -> None:
    """Write a pipeline instance: by options, a profile, or at random.

    `ppsolve generate --seed 7 -o FILE` draws a heterogeneous one: 4-8 devices, 8-12 micro-batches,
    F and I of 50-150 and W of 30-100 per stage, p2p 10, memory for p activations on each device.
    Any option overrides what the seed or the profile would give.
    """
    texts = {
        name: value
        for name, value in locals().items()
        if value is not None and name not in {"output", "seed", "random", "profile"}
    }
    chosen_seed = 0 if random and seed is None else seed
    options = read_options(texts)
    with _about_options(texts):
        instance = generate(seed=chosen_seed, profile=profile, **options)
    write_text(output, instance_text(instance))
    if output != "-":
        say(f"wrote {output} ({instance.name})")


@contextmanager
def _about_options(texts: Mapping[str, str]) -> Iterator[None]:
    """Let errors about a field that an option gives name the option."""
    try:
        yield
    except InputError as error:
        name, bracket, rest = (error.field or "").rpartition(".")[2].partition("[")
        if name not in texts:
            raise
        raise error.about(f"--{name.replace('_', '-')}{bracket}{rest}") from None
