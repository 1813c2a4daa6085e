"""``ppsolve convert``: other programs' files to instances, schedules to their files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ppsolve.models.core.result import HeuristicEntry
from ppsolve.models.documents.errors import errors_in
from ppsolve.models.documents.files import (
    read_json,
    read_text,
    source_name,
    write_bytes,
    write_text,
)
from ppsolve.models.documents.text import instance_text
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import about_file, say
from ppsolve.solver.cli.inputs import FedOrder, data_order, load_pipeline, open_choice
from ppsolve.solver.cli.options import argument, flag, value
from ppsolve.solver.cli.output import check_writable, json_text
from ppsolve.solver.cli.traces import convert_trace_command
from ppsolve.solver.formats.detect import files_of
from ppsolve.solver.formats.kineto.program import convert_kineto_overlap
from ppsolve.solver.formats.layers import MegatronLayout, parse_layout
from ppsolve.solver.formats.megatron import LayerTimes, instance_of
from ppsolve.solver.formats.mindspeed import convert_mindspeed
from ppsolve.solver.formats.overlap_graph import convert_overlap_graph
from ppsolve.solver.formats.pipefisher import (
    convert_pipefisher,
    schedule_labels,
    schedule_pickle,
    timeline_files,
)
from ppsolve.solver.formats.sapp import convert_sapp, sapp_answer
from ppsolve.solver.formats.torch_csv import convert_torch_csv
from ppsolve.solver.formats.visualizer import convert_visualizer

group = typer.Typer(no_args_is_help=True, help="Convert other programs' files.")


@group.command("visualizer")
def convert_visualizer_command(
    config: Annotated[
        str, argument("CONFIG", "JSON, or YAML if named .yml/.yaml; - is stdin.")
    ],
    output: opt.TextOutput = "-",
) -> None:
    """Convert a visualizer config to a pipeline instance.

    The config is that of the pipeline-parallelism visualizer. Warnings about lists that were
    continued or cut go to stderr.
    """
    _convert(convert_visualizer, config, output)


@group.command("pipefisher", short_help="PipeFisher's timelines to a K-FAC instance.")
def convert_pipefisher_command(
    files: Annotated[
        list[str], argument("FILES", "Timeline pickles, or folders of them.")
    ],
    allow_pickle: Annotated[
        bool,
        flag(
            "Read pickles, with a reader that never runs their code.", "--allow-pickle"
        ),
    ] = False,
    output: opt.TextOutput = "-",
) -> None:
    """Convert PipeFisher's timeline pickles, one per device, to a K-FAC instance.

    The last profiled step is used. A folder must contain all nodes of a run. Each device is
    scheduled alone, as PipeFisher does; `sync_groups` of the instance names devices that sync
    together. Warnings about suspicious or unused data go to stderr.
    """
    check_writable(Path(output), *files)

    paths = [Path(file) for file in files]
    instance, warnings = convert_pipefisher(paths, allow_pickle=allow_pickle)
    check_writable(Path(output), *timeline_files(paths)[0])
    say(*(f"warning: {warning}" for warning in warnings))
    write_text(output, instance_text(instance))


@group.command(
    "pipefisher-schedule", short_help="A refresh to PipeFisher's schedule pickle."
)
def convert_pipefisher_schedule_command(
    result: Annotated[
        Path, argument("RESULT", "Result or heuristic entry (JSON); - is stdin.")
    ],
    output: Annotated[
        Path, value("FILE", "Pickle to write; - is stdout.", "--output", "-o")
    ],
    heuristic: Annotated[
        str | None, value("NAME", "Write this heuristic's schedule instead.")
    ] = None,
) -> None:
    """Write the schedule pickle that PipeFisher's runner reads.

    RESULT is the output of `ppsolve optimize` or `simulate` for a K-FAC instance around a pinned
    pipeline. The pickle is a list of labels by device and iteration, with PipeFisher's markers; it
    holds nothing but lists and texts.
    """
    check_writable(output, result)

    labels, warnings = schedule_labels(
        read_json(result), source_name(result), heuristic
    )
    say(*(f"warning: {warning}" for warning in warnings))
    data = schedule_pickle(labels)
    if str(output) == "-":
        typer.echo(data, nl=False)
    else:
        write_bytes(output, data)


@group.command(
    "overlap-graph", short_help="A graph of collectives to an overlap instance."
)
def convert_overlap_graph_command(
    graph: Annotated[
        str, argument("GRAPH", "Graph in program order (JSON); - is stdin.")
    ],
    output: opt.TextOutput = "-",
) -> None:
    """Convert a graph of compute, collectives and waits to an overlap instance.

    The graph lists its nodes in program order: {"name", "unit", "nodes": [{"name", "kind",
    "duration", "deps"}, ...]}. Warnings about fields that are not used go to stderr.
    """
    _convert(convert_overlap_graph, graph, output)


@group.command("kineto-overlap", short_help="A profiled step to an overlap instance.")
def convert_kineto_overlap_command(
    files: Annotated[
        list[str], argument("TRACE", "Profiles of one rank, or folders of them.")
    ],
    output: opt.TextOutput = "-",
    result_out: Annotated[
        Path | None,
        value("FILE", "Write the recorded order, run without its gaps."),
    ] = None,
    step: Annotated[
        int | None, value("N", "Number of the ProfilerStep [one of median length].")
    ] = None,
    prefetch: Annotated[
        str | None,
        value(
            "A,B",
            "Collectives that read no result of a kernel, e.g. all_gather of parameters.",
        ),
    ] = None,
) -> None:
    """Convert a step of one rank, recorded by the PyTorch profiler, to an overlap instance.

    Kernels keep their order. NCCL kernels become collectives with type, group and bytes;
    synchronisation events become waits. Assumptions about missing events go to stderr, with the
    time of the recorded order and the exposed part of it.
    """
    sources = files_of([Path(file) for file in files])
    check_writable(Path(output), *sources)
    check_writable(result_out, *sources, option="--result-out")
    types = () if prefetch is None else tuple(prefetch.split(","))
    instance, entry, notes = convert_kineto_overlap(sources, step, types)
    say(*(f"note: {note}" for note in notes))
    write_text(output, instance_text(instance))
    if result_out is not None:
        write_text(result_out, json_text(entry))


@group.command("torch-csv", short_help="PyTorch's schedule file to a schedule.")
def convert_torch_csv_command(
    file: Annotated[
        str, argument("FILE", "PyTorch's schedule file (.csv); - is stdin.")
    ],
    instance: Annotated[
        Path, value("INSTANCE", "The pipeline that the file is for, or its result.")
    ],
    output: opt.TextOutput = "-",
    fed: FedOrder = None,
    exact: opt.Exact = False,
) -> None:
    """Convert PyTorch's schedule file, of either format, to a schedule of a pipeline.

    Writes, like a heuristic's entry, the checked schedule that starts each op as early as the order
    of the file allows. Its distance from a bound on the optimum goes to stderr. A file that breaks
    a rule of the runtime is refused with the rule. If modes or layers were chosen, --instance takes
    the result that chose them.
    """
    check_writable(Path(output), file, instance)

    pipeline, claims = load_pipeline(instance, file)
    with about_file(pipeline, instance):
        order = data_order(fed, pipeline, claims)
        entry, excess = convert_torch_csv(file, pipeline, order, claims, exact=exact)
    write_text(output, json_text(entry))
    unit, choice = pipeline.time_unit, open_choice(pipeline)
    above = f"{excess:.2%} above the optimum" + (
        f" with these {choice}" if choice else ""
    )
    how = f"at most {above}" if entry.reason is None else f"infeasible: {entry.reason}"
    say(f"note: {pipeline.objective} {entry.value} {unit}, {how}")


@group.command(
    "sapp", short_help="SAPP's layers to an instance, and its answer to a result."
)
def convert_sapp_command(
    layers: Annotated[str, argument("LAYERS", "SAPP's layers (JSON); - is stdin.")],
    stages: Annotated[int, value("P", "Devices of the pipeline.", min=1)],
    microbatches: Annotated[int, value("M", "Micro-batches of a step.", min=1)],
    memory: Annotated[float, value("MB", "Memory of a device.")],
    chunks: Annotated[int, value("V", "Stages of a device, interleaved.", min=1)] = 1,
    less_memory: Annotated[
        bool,
        flag("The answer uses the order with less memory.", "--less-memory"),
    ] = False,
    answer: Annotated[
        Path | None, value("FILE", "SAPP's offsets and recomputation (YAML or JSON).")
    ] = None,
    result_out: Annotated[
        Path | None, value("FILE", "Write the answer's schedule here.")
    ] = None,
    output: opt.TextOutput = "-",
) -> None:
    """Convert the layers of SAPP, MindFormers' pipeline balancer, to an instance.

    The instance leaves open how many layers each stage gets and how each layer is recomputed. With
    --answer, SAPP's own split becomes a schedule of the instance, so that `ppsolve show` draws
    both.
    """
    check_writable(Path(output), layers)
    instance, warnings = convert_sapp(layers, stages, microbatches, memory, chunks)
    say(*(f"warning: {warning}" for warning in warnings))
    write_text(output, instance_text(instance))
    if answer is not None:
        check_writable(result_out, layers, str(answer), option="--result-out")
        entry = sapp_answer(answer, instance, less_memory=less_memory)
        _say_entry(entry, instance)
        if result_out is not None:
            write_text(result_out, json_text(entry))


@group.command("mindspeed", short_help="MindSpeed's policy file to a schedule.")
def convert_mindspeed_command(
    policy: Annotated[str, argument("POLICY", "Policy file (JSON); - is stdin.")],
    instance: Annotated[Path, value("INSTANCE", "The pipeline that the file is for.")],
    output: opt.TextOutput = "-",
) -> None:
    """Convert the answer of MindSpeed's pipeline planner to a schedule of a pipeline.

    Writes, like a heuristic's entry, the checked schedule that starts each op as early as the order
    of the file allows.
    """
    check_writable(Path(output), policy, instance)
    pipeline, _ = load_pipeline(instance, policy)
    entry = convert_mindspeed(policy, pipeline)
    write_text(output, json_text(entry))
    _say_entry(entry, pipeline)


def _say_entry(entry: HeuristicEntry, pipeline: PipelineInstance) -> None:
    how = "" if entry.reason is None else f", infeasible: {entry.reason}"
    say(f"note: {pipeline.objective} {entry.value} {pipeline.time_unit}{how}")


@group.command("megatron-layout", short_help="Megatron-LM's layout to a split.")
def convert_layout_command(
    layout: Annotated[
        str, argument("LAYOUT", "Layout string or lists of names, or a file of them.")
    ],
    ranks: Annotated[int, value("P", "Pipeline ranks (pipeline size).", min=1)],
    layers: Annotated[
        int | None, value("N", "Number of decoder layers to expect.")
    ] = None,
    mtp_layers: Annotated[
        int | None, value("N", "Number of layers m to expect.")
    ] = None,
    times: Annotated[
        Path | None, value("FILE", "Times of layers (JSON): write an instance.")
    ] = None,
    output: opt.TextOutput = "-",
) -> None:
    """Convert a layout of Megatron-LM to its split, or with times to an instance.

    A list has the form of configurations, [["embedding", "decoder"], ["decoder", "loss"]], as JSON.
    The split (JSON) lists the stages and the decoder layers of each, by stage and by rank and
    chunk. --times names a file {"num_microbatches", "decoder": {"forward", "backward"}, ...}, which
    may also have "embedding", "mtp", "loss", "time_unit" and "p2p". "decoder" may be a list with
    the times of each layer, and "backward" may be split as in an instance.
    """
    text, source = _text(layout)
    check_writable(
        Path(output), *([times] if times else []), *([layout] if source else [])
    )

    with errors_in(source):
        parsed_layout = parse_layout(
            text, ranks, num_layers=layers, mtp_layers=mtp_layers
        )
    if times is None:
        write_text(output, json.dumps(_split(parsed_layout), indent=2) + "\n")
        return
    layer_times = LayerTimes.parse(read_json(times), source_name(times))
    with errors_in(source_name(times)):
        write_text(output, instance_text(instance_of(parsed_layout, layer_times)))


def _convert(
    read: Callable[[str], tuple[Instance, list[str]]], path: str, output: str
) -> None:
    check_writable(Path(output), path)
    instance, warnings = read(path)
    say(*(f"warning: {warning}" for warning in warnings))
    write_text(output, instance_text(instance))


def _text(layout: str) -> tuple[str, str | None]:
    """Return a layout string, and the name of the file that it was read from."""
    try:
        is_file = Path(layout).is_file()
    except OSError:
        is_file = False
    if not is_file:
        return layout, None
    return read_text(layout).removesuffix("\n"), source_name(layout)


def _split(layout: MegatronLayout) -> dict[str, object]:
    return {
        "layout": layout.text(),
        "pipeline_size": layout.num_ranks,
        "chunks": layout.chunks,
        "stages": layout.stages,
        "layers_per_stage": layout.layers_per_stage,
        "rank_chunks": layout.by_rank(layout.stages),
        "layer_ids": layout.by_rank(layout.layer_ids),
        "mtp_standalone": layout.mtp_standalone,
    }


group.command(
    "trace", short_help="A recorded run to instances and recorded schedules."
)(convert_trace_command)
