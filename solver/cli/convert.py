"""``ppsolve convert``: other programs' files to instances, schedules to their files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ppsolve.models.documents.files import read_json, source_name, write_bytes, write_text
from ppsolve.models.documents.text import instance_text
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import about_file, say
from ppsolve.solver.cli.layouts import convert_layout_command
from ppsolve.solver.cli.output import check_writable, json_text
from ppsolve.solver.cli.pipelines import FedOrder, data_order, load_pipeline
from ppsolve.solver.cli.traces import convert_trace_command
from ppsolve.solver.formats.overlap_graph import convert_overlap_graph
from ppsolve.solver.formats.pipefisher.files import timeline_files
from ppsolve.solver.formats.pipefisher.schedule import schedule_labels, schedule_pickle
from ppsolve.solver.formats.pipefisher.timelines import convert_pipefisher
from ppsolve.solver.formats.torch_csv import convert_torch_csv
from ppsolve.solver.formats.visualizer import convert_visualizer

Config = Annotated[
    str, typer.Argument(metavar="CONFIG", help="JSON, or YAML if named .yml/.yaml; - is stdin.")
]
Timelines = Annotated[
    list[str], typer.Argument(metavar="FILES", help="Timeline pickles, or folders of them.")
]
AllowPickle = Annotated[
    bool,
    typer.Option("--allow-pickle", help="Read pickles, by a reader that runs nothing they name."),
]
CoupleReplicas = Annotated[
    bool,
    typer.Option(
        "--couple-replicas", help="Let syncs of devices with replicas of the same modules meet."
    ),
]
GraphFile = Annotated[
    str, typer.Argument(metavar="GRAPH", help="Graph in program order (JSON); - is stdin.")
]
RefreshFile = Annotated[
    Path,
    typer.Argument(metavar="RESULT", help="Result or heuristic entry (JSON); - is stdin."),
]
EntryName = Annotated[
    str | None,
    typer.Option("--heuristic", metavar="NAME", help="Take this heuristic's schedule instead."),
]
ScheduleFile = Annotated[
    str, typer.Argument(metavar="FILE", help="PyTorch's schedule file (.csv); - is stdin.")
]
PipelineFile = Annotated[
    Path, typer.Option("--instance", metavar="INSTANCE", help="The pipeline that it is for.")
]
Pickle = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="Pickle to write; - is stdout.")
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is stdout.")
]


def register(app: typer.Typer) -> None:
    """Add the command group to `app`."""
    group = typer.Typer(no_args_is_help=True, help="Convert other programs' files.")
    group.command("visualizer")(convert_visualizer_command)
    group.command("pipefisher", short_help="PipeFisher's timelines to a K-FAC instance.")(
        convert_pipefisher_command
    )
    group.command("pipefisher-schedule", short_help="A refresh to PipeFisher's schedule pickle.")(
        convert_pipefisher_schedule_command
    )
    group.command("overlap-graph", short_help="A graph of collectives to an overlap instance.")(
        convert_overlap_graph_command
    )
    group.command("torch-csv", short_help="PyTorch's schedule file to a schedule.")(
        convert_torch_csv_command
    )
    group.command("megatron-layout", short_help="Megatron-LM's layout string to a split.")(
        convert_layout_command
    )
    group.command("trace", short_help="A recorded run to instances and recorded schedules.")(
        convert_trace_command
    )
    group.callback()(_group)
    app.add_typer(group, name="convert")


def _group() -> None:
    """Convert other programs' files to instances, or schedules to their files."""


def convert_visualizer_command(config: Config, output: Output = "-") -> None:
    """Convert a visualizer config to a pipeline instance.

    The config is that of the pipeline-parallelism visualizer. Warnings about lists that were
    continued or cut go to stderr.
    """
    check_writable(Path(output), config)

    instance, warnings = convert_visualizer(config)
    for warning in warnings:
        say(f"warning: {warning}")
    write_text(output, instance_text(instance))


def convert_pipefisher_command(
    files: Timelines,
    allow_pickle: AllowPickle = False,
    couple_replicas: CoupleReplicas = False,
    output: Output = "-",
) -> None:
    """Convert PipeFisher's timeline pickles, one per device, to a K-FAC instance.

    The last profiled step counts. A folder must hold all nodes of a run. Each device is scheduled
    alone, as PipeFisher does, unless --couple-replicas. Warnings about what is suspicious or left
    out go to stderr.
    """
    check_writable(Path(output), *files)

    paths = [Path(file) for file in files]
    instance, warnings, notes = convert_pipefisher(
        paths, allow_pickle=allow_pickle, couple_replicas=couple_replicas
    )
    check_writable(Path(output), *timeline_files(paths)[0])
    for line in (*(f"warning: {text}" for text in warnings), *(f"note: {text}" for text in notes)):
        say(line)
    write_text(output, instance_text(instance))


def convert_overlap_graph_command(graph: GraphFile, output: Output = "-") -> None:
    """Convert a graph of compute, collectives and waits to an overlap instance.

    The graph lists its nodes in program order: {"name", "unit", "nodes": [{"name", "kind",
    "duration", "deps"}, ...]}. Warnings about fields that are not used go to stderr.
    """
    check_writable(Path(output), graph)

    instance, warnings = convert_overlap_graph(graph)
    for warning in warnings:
        say(f"warning: {warning}")
    write_text(output, instance_text(instance))


def convert_torch_csv_command(
    file: ScheduleFile,
    instance: PipelineFile,
    output: Output = "-",
    fed: FedOrder = None,
    exact: opt.Exact = False,
) -> None:
    """Convert PyTorch's schedule file, of either format, to a schedule of a pipeline.

    What is written is like a heuristic's entry: the schedule that starts each op as early as the
    order of the file allows, checked. How far it is from a bound on the optimum goes to stderr. A
    file that breaks a rule of the runtime is refused with the rule.
    """
    check_writable(Path(output), file, instance)

    pipeline = load_pipeline(instance, file)
    with about_file(pipeline, instance):
        order = data_order(fed, pipeline)
        entry, most = convert_torch_csv(file, pipeline, order, exact=exact)
    write_text(output, json_text(entry))
    unit = pipeline.time_unit
    if entry.reason is not None:
        say(f"warning: the schedule breaks a rule: {entry.reason}")
    say(f"note: {pipeline.objective} {entry.value} {unit}, at most {most:.2%} above the optimum")


def convert_pipefisher_schedule_command(
    result: RefreshFile, output: Pickle, heuristic: EntryName = None
) -> None:
    """Write the schedule pickle that PipeFisher's runner reads.

    RESULT is what `ppsolve optimize` or `simulate` writes of a K-FAC instance around a pinned
    pipeline. The pickle is a list of labels by device and iteration, with PipeFisher's markers;
    it holds nothing but lists and texts.
    """
    check_writable(output, result)

    labels, warnings = schedule_labels(read_json(result), source_name(result), heuristic)
    for warning in warnings:
        say(f"warning: {warning}")
    data = schedule_pickle(labels)
    if str(output) == "-":
        typer.echo(data, nl=False)
    else:
        write_bytes(output, data)
