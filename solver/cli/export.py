"""``ppsolve export``: a schedule or plan as the file that a training runtime reads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json, source_name, write_text
from ppsolve.solver.cli.guard import say
from ppsolve.solver.cli.output import check_writable
from ppsolve.solver.cli.pictures import export_picture, refuse_given
from ppsolve.solver.cli.pipelines import load_pipeline
from ppsolve.solver.formats.layers import counts_of, parse_counts
from ppsolve.solver.formats.perfetto import PICTURES
from ppsolve.solver.formats.program import RuntimeProgram, in_data_order, read_program
from ppsolve.solver.formats.targets import NOT_TESTED, chosen
from ppsolve.solver.formats.torch_csv import DATA_ORDER

ResultFile = Annotated[
    str,
    typer.Argument(metavar="RESULT", help="Result, heuristic entry, schedule or plan; - is stdin."),
]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="NAME",
        help="torch, torchtitan, megatron, colossalai, primus, deepspeed or json; perfetto: a "
        "trace to look at, of any kind of instance.",
    ),
]
Format = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="torch: compute_only or compute_comms."),
]
InstanceFile = Annotated[
    Path | None,
    typer.Option(
        "--instance", metavar="FILE", help="Instance of what carries none: a schedule is checked."
    ),
]
EntryName = Annotated[
    str | None,
    typer.Option("--heuristic", metavar="NAME", help="Take this heuristic's order instead."),
]
Replica = Annotated[
    int | None,
    typer.Option("--replica", metavar="R", min=0, help="Take this replica of several, from 0."),
]
DataOrder = Annotated[
    Path | None,
    typer.Option(
        DATA_ORDER,
        metavar="FILE",
        help="Renumber micro-batches where needed; write which one stands at each index (JSON).",
    ),
]
Shards = Annotated[
    bool,
    typer.Option("--fsdp", help="torch, compute_comms: gather and drop parameters of each stage."),
]
Layers = Annotated[
    str | None,
    typer.Option("--layers", metavar="N,N,...", help="Layers of each stage; a plan has its own."),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="LAYERS",
        help="What these layers are, such as Et*10L; decoder layers by default.",
    ),
]
Recomputed = Annotated[
    str | None,
    typer.Option(
        "--recompute",
        metavar="N,N,...",
        help="megatron, primus: layers of each stage that are recomputed in the backward.",
    ),
]
Beside = Annotated[
    list[str] | None,
    typer.Option(
        "--beside",
        metavar="RESULT",
        help="perfetto: show this schedule in the same trace; repeatable.",
        show_default=False,
    ),
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is stdout.")
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("export", short_help="Write a schedule as a file of a runtime or a viewer.")(
        export_command
    )


def export_command(
    result: ResultFile,
    to: To,
    output: Output = "-",
    format: Format = None,
    instance: InstanceFile = None,
    heuristic: EntryName = None,
    replica: Replica = None,
    data_order: DataOrder = None,
    layers: Layers = None,
    model: Model = None,
    recompute: Recomputed = None,
    fsdp: Shards = False,
    beside: Beside = None,
) -> None:
    """Write the schedule of a result, or a plan, as the file that a training runtime reads.

    What the runtime cannot say is refused with the rule and the first op that breaks it (exit code
    2). docs/runtimes.md lists what each runtime can say.

    `--to perfetto` writes a trace for ui.perfetto.dev and chrome://tracing instead.
    """
    inputs: list[str | Path] = [result, *(beside or []), *([instance] if instance else [])]
    check_writable(Path(output), *inputs)
    check_writable(data_order, *inputs, option=DATA_ORDER)
    if to in PICTURES:
        given = {"--format": format, "--replica": replica, DATA_ORDER: data_order}
        given |= {"--layers": layers, "--model": model, "--recompute": recompute, "--fsdp": fsdp}
        refuse_given(given, f"expected a runtime; {to} shows the schedule as it is")
        files = [result, *(beside or [])]
        export_picture(to, files, Path(output), instance=instance, heuristic=heuristic)
        return

    target = chosen(to)
    refuse_given({"--beside": beside}, f"expected --to {' or '.join(PICTURES)}")
    again = None if recompute is None else parse_counts(recompute, "--recompute")
    settings = target.settings(format, fsdp=fsdp, model=model, recomputed=again)
    counts = None if layers is None else parse_counts(layers)
    pipeline = None if instance is None else load_pipeline(instance, result)
    try:
        program = read_program(read_json(result), pipeline, heuristic=heuristic, replica=replica)
        program = in_data_order(program, may_permute=data_order is not None)
        program = program if counts is None else replace(program, layers=counts)
        counts_of(program)
        texts = target.files(program, settings, Path(output))
    except InputError as error:
        is_option = error.field is not None and error.field.startswith("--")
        raise (error if is_option else error.located(source_name(result))) from None
    for path in texts:
        check_writable(path, *inputs)
    for path, text in texts.items():
        write_text(path, text)
    _tell_order(program, data_order)
    if not target.is_tested:
        say(f"note: {target.name}: {NOT_TESTED}")


def _tell_order(program: RuntimeProgram, path: Path | None) -> None:
    """Report at which index each micro-batch stands."""
    if path is not None:
        write_text(path, json.dumps(list(program.microbatches)) + "\n")
    if program.is_renumbered:
        first = ", ".join(map(str, program.microbatches[:8]))
        more = ", ..." if program.num_microbatches > 8 else ""
        say(f"note: micro-batches are renumbered: 0, 1, 2, ... of the file are {first}{more}")
