"""``ppsolve export``: a schedule or plan as the file that a training runtime reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, cast

import typer

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json, source_name, write_text
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.cli.guard import say
from ppsolve.solver.cli.output import check_writable
from ppsolve.solver.export.program import Program, in_data_order, read_program
from ppsolve.solver.export.targets import Settings, chosen
from ppsolve.solver.optimize.kinds import load_instance

ResultFile = Annotated[
    str,
    typer.Argument(metavar="RESULT", help="Result, heuristic entry, schedule or plan; - is stdin."),
]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="RUNTIME",
        help="torch, torchtitan, megatron, colossalai, primus, deepspeed or json.",
    ),
]
Format = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="torch: compute_only or compute_comms."),
]
InstanceFile = Annotated[
    Path | None,
    typer.Option(
        "--instance", metavar="FILE", help="Pipeline of the result: the schedule is checked."
    ),
]
EntryName = Annotated[
    str | None,
    typer.Option("--heuristic", metavar="NAME", help="Take this heuristic's order instead."),
]
DataOrder = Annotated[
    Path | None,
    typer.Option(
        "--data-order",
        metavar="FILE",
        help="Renumber micro-batches where needed; write which one stands at each index (JSON).",
    ),
]
Shards = Annotated[
    bool,
    typer.Option("--fsdp", help="torch, compute_comms: gather and drop parameters of each stage."),
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is stdout.")
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("export", short_help="Write a schedule as a runtime's file.")(export_command)


def export_command(
    result: ResultFile,
    to: To,
    output: Output = "-",
    format: Format = None,
    instance: InstanceFile = None,
    heuristic: EntryName = None,
    data_order: DataOrder = None,
    fsdp: Shards = False,
) -> None:
    """Write the schedule of a result, or a plan, as the file that a training runtime reads.

    What the runtime cannot say is refused with the rule and the first op that breaks it (exit code
    2). docs/runtimes.md lists what each runtime can say.
    """
    inputs: list[str | Path] = [result, *([instance] if instance else [])]
    check_writable(Path(output), *inputs)
    check_writable(data_order, *inputs, option="--data-order")

    target = chosen(to)
    settings = Settings.checked(target, format, fsdp=fsdp)
    pipeline = None if instance is None else _pipeline(instance)
    try:
        program = read_program(read_json(result), pipeline, heuristic)
        program = in_data_order(program, may_permute=data_order is not None)
        text = target.write(program, settings)
    except InputError as error:
        raise error.located(source_name(result)) from None
    write_text(output, text)
    _tell_order(program, data_order)
    for note in target.notes:
        say(f"note: {note}")


def _pipeline(path: Path) -> PipelineInstance:
    instance = load_instance(path)
    if instance.kind != "pipeline":
        raise InputError(
            f'expected a pipeline, got "{instance.kind}"', source=source_name(path), field="kind"
        )
    return cast("PipelineInstance", instance)


def _tell_order(program: Program, path: Path | None) -> None:
    """Report at which index each micro-batch stands."""
    if path is not None:
        write_text(path, json.dumps(list(program.microbatches)) + "\n")
    if program.is_renumbered:
        first = ", ".join(map(str, program.microbatches[:8]))
        more = ", ..." if program.num_microbatches > 8 else ""
        say(f"note: micro-batches are renumbered: 0, 1, 2, ... of the file are {first}{more}")
