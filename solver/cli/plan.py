"""``ppsolve plan`` and ``plan init``: the configuration with the highest goodput, its request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_about
from ppsolve.models.documents.files import source_name, write_text
from ppsolve.models.documents.text import instance_text
from ppsolve.models.studies.plan.request import load_request
from ppsolve.models.studies.plan.result import Plan
from ppsolve.models.studies.plan.scaffold import explained, plan_request
from ppsolve.models.studies.plan.sizes import Sizes
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import ExitCode, about_options, say
from ppsolve.solver.cli.options import argument, flag, value
from ppsolve.solver.cli.output import (
    Chart,
    check_outputs,
    deliver,
    json_text,
    save,
    stdout_console,
    write_chart,
)
from ppsolve.solver.studies.generate.flags import option_of, parse_number
from ppsolve.solver.studies.plan import api
from ppsolve.solver.views.plan import plan_chart, plan_line, plan_report
from ppsolve.solver.views.progress import plan_progress

OPTION_OF = {
    "time_limit": "--time-limit",
    "finalists": "--finalists",
    "gap": "--gap",
    "runtime": "--for",
}
"""Options by the names that the library gives them in errors."""


@dataclass(frozen=True)
class PlanOptions:
    """Options under the names of `ppsolve.plan`."""

    time_limit: Annotated[
        float,
        opt.time_limit(
            "Wall seconds after the first winner; with --deterministic or --exhaustive, per exact "
            "search."
        ),
    ] = 45.0
    finalists: Annotated[
        int, value("N", "Maximum number of configurations for the exact solver.", min=0)
    ] = 12
    gap: Annotated[
        float,
        value(
            "G",
            "Ignore configurations that can be better by at most this share.",
            min=0,
            max=1,
        ),
    ] = 0.0
    runtime: opt.Runtime = None
    exhaustive: Annotated[
        bool,
        flag(
            "Give all configurations to the exact solver, pruning none by bounds.",
            "--exhaustive",
        ),
    ] = False
    deterministic: opt.Deterministic = False
    workers: opt.Workers = None
    seed: opt.Seed = 0


@opt.with_option_groups
def plan_command(
    request: Annotated[Path, argument("REQUEST", "Plan request (JSON); - is stdin.")],
    options: PlanOptions,
    reporting: opt.Reporting,
    instance_out: Annotated[
        Path | None, value("FILE", "Write the winner's pipeline instance here.")
    ] = None,
    result_out: Annotated[
        Path | None, value("FILE", "Write the winner's result with its schedule here.")
    ] = None,
    chart: Chart = None,
    top: Annotated[
        int | None, value("N", "Rows of the table [10; all with --verbose].", min=0)
    ] = None,
) -> None:
    """Choose how to train: pipeline depth, replicas, placement, micro-batches, schedule.

    Finds the configuration with the highest goodput by bounds, heuristics and the exact solver, and
    says why every other one lost. Exit codes: 0 found, 2 wrong input, 3 proved that none fits the
    memory, 4 no schedule found, 130 interrupted (best so far printed and saved).
    """
    winner = {"--instance-out": instance_out, "--result-out": result_out}
    check_outputs({"--output": reporting.output, **winner, "--chart": chart}, request)
    plan = _plan(request, options, reporting)
    _write_winner(plan, instance_out, result_out)
    write_chart(chart, plan_chart(plan))
    if not deliver(plan, reporting.output, as_json=reporting.as_json):
        quiet, verbose = reporting.quiet, reporting.verbose
        summary = (
            plan_line(plan) if quiet else plan_report(plan, top=top, verbose=verbose)
        )
        stdout_console().print(summary, soft_wrap=quiet)
    raise typer.Exit(_exit_code(plan))


def _plan(path: Path, options: PlanOptions, reporting: opt.Reporting) -> Plan:
    request = load_request(path)
    limit, quiet, everything = options.time_limit, reporting.quiet, reporting.verbose
    progress = plan_progress(
        request.name, time_limit=limit, quiet=quiet, everything=everything
    )
    with _about_request(path), progress as listener:
        return api.plan(request, on_progress=listener, **vars(options))


@contextmanager
def _about_request(path: Path) -> Iterator[None]:
    """Let errors of the planner name the option, or the file of the request."""
    try:
        yield
    except InputError as error:
        if error.field in OPTION_OF:
            raise error.moved(None, OPTION_OF[error.field]) from None
        raise error.located(source_name(path)) from None


def _write_winner(
    plan: Plan, instance_out: Path | None, result_out: Path | None
) -> None:
    """Write the winner's instance and its result; says so where there is no winner."""
    for path, document in ((instance_out, plan.instance), (result_out, plan.result)):
        if path is not None and document is None:
            say(f"warning: {path}: not written, there is no winner")
    if instance_out is not None and plan.instance is not None:
        save(instance_out, instance_text(plan.instance))
    if result_out is not None and plan.result is not None:
        save(result_out, json_text(plan.result))


def _exit_code(plan: Plan) -> ExitCode:
    if plan.interrupted:
        return ExitCode.INTERRUPTED
    if plan.status is Status.INFEASIBLE:
        return ExitCode.INFEASIBLE
    return ExitCode.FOUND if plan.winner is not None else ExitCode.NOTHING_FOUND


def plan_init_command(
    layers: Annotated[int, value("N", "Transformer blocks.")],
    hidden: Annotated[int, value("N", "Hidden size.")],
    heads: Annotated[int, value("N", "Attention heads.")],
    sequence_length: Annotated[int, value("N", "Tokens of a sample.")],
    vocabulary: Annotated[int, value("N", "Tokens in the vocabulary.")],
    batch_size: Annotated[int, value("N", "Samples of a step.")],
    devices: Annotated[int, value("X", "Devices of the cluster.")],
    memory: Annotated[str, value("X", "Bytes of a device, 80GB.")],
    flops: Annotated[float, value("X", "FLOP/s that a device achieves, 180e12.")],
    bandwidth: Annotated[str, value("X", "Bytes/s within a node, 200GB/s.")],
    node_bandwidth: Annotated[
        str | None, value("X", "Bytes/s of a device between nodes, 25GB/s.")
    ] = None,
    devices_per_node: Annotated[
        int | None, value("X", "Devices in a node [all].")
    ] = None,
    latency: Annotated[
        float, value("X", "Microseconds of a transfer [0].", show_default=False)
    ] = 0.0,
    kv_heads: Annotated[
        int | None,
        value("N", "Heads of keys and values, fewer than --heads with GQA [heads]."),
    ] = None,
    head_dim: Annotated[
        int | None, value("N", "Width of a head [hidden / heads].")
    ] = None,
    ffn: Annotated[
        int | None, value("N", "Width of the feed-forward layer [4 x hidden].")
    ] = None,
    gated: Annotated[
        bool,
        flag("Use gated layers without biases and dropout, as Llama does.", "--gated"),
    ] = False,
    experts: Annotated[
        int, value("N", "Experts of a block [0].", show_default=False)
    ] = 0,
    experts_per_token: Annotated[
        int, value("N", "Experts that each token uses [1].", show_default=False)
    ] = 1,
    shared_experts: Annotated[
        int,
        value("N", "Further experts that every token uses [0].", show_default=False),
    ] = 0,
    expert_ffn: Annotated[
        int | None, value("N", "Width of an expert [that of --ffn].")
    ] = None,
    dense_layers: Annotated[
        int,
        value(
            "N", "Number of first blocks that have no experts [0].", show_default=False
        ),
    ] = 0,
    query_rank: Annotated[
        int, value("N", "Latent attention: rank of queries [none].", show_default=False)
    ] = 0,
    kv_rank: Annotated[
        int,
        value(
            "N", "Latent attention: rank of keys and values [none].", show_default=False
        ),
    ] = 0,
    rope_dim: Annotated[
        int,
        value(
            "N",
            "Latent attention: dimensions of a head for positions [none].",
            show_default=False,
        ),
    ] = 0,
    flash_attention: Annotated[
        bool, flag("Use flash attention, which keeps no scores.", "--flash-attention")
    ] = False,
    microbatch_sizes: Annotated[
        str, value("A,B", "Samples of a micro-batch [1].", show_default=False)
    ] = "1",
    tensor_parallel: Annotated[
        str, value("A,B", "Devices that share each layer [1].", show_default=False)
    ] = "1",
    sequence_parallel: Annotated[
        bool,
        flag(
            "Devices that share a layer split its sequences too.", "--sequence-parallel"
        ),
    ] = False,
    context_parallel: Annotated[
        int, value("N", "Devices that share each sequence [1].", show_default=False)
    ] = 1,
    expert_parallel: Annotated[
        int, value("N", "Replicas that share the experts [1].", show_default=False)
    ] = 1,
    optimizer_shards: Annotated[
        int,
        value(
            "N",
            "Replicas that share the optimizer: distributed optimizer, FSDP [1].",
            show_default=False,
        ),
    ] = 1,
    recompute: Annotated[
        str, value("A,B", "none, selective or full [none].", show_default=False)
    ] = "none",
    explain: Annotated[
        bool, flag("Print every estimate with its formula on stderr.", "--explain")
    ] = False,
    name: Annotated[str, value("TEXT", "Name of the request.")] = "plan",
    output: Annotated[str, value("FILE", "- is stdout.", "--output", "-o")] = "-",
) -> None:
    """Write a plan request from the sizes of a decoder and a cluster.

    Each time is a number of operations divided by the rate that a device achieves.
    Replace both by what you measure, then give the file to `ppsolve plan`.
    """
    settings = {key: value for key, value in locals().items() if value is not None}
    del settings["explain"]
    profiles = list(_sizes(settings))
    request = plan_request(*profiles)
    if explain:
        for sizes in profiles:
            t, how = sizes.tensor_parallel, sizes.recompute
            say(f"tensor parallel {t}, recompute {how}:", *explained(sizes))
    write_text(output, instance_text(request))
    if output != "-":
        say(f"wrote {output} ({request.name})")


def _sizes(settings: dict[str, Any]) -> Iterator[Sizes]:
    """Yield the sizes with each tensor parallelism and each recomputation."""
    del settings["output"]
    for name in ("microbatch_sizes", "tensor_parallel"):
        try:
            settings[name] = list(map(int, settings[name].split(",")))
        except ValueError:
            message = f'expected whole numbers with commas, got "{settings[name][:40]}"'
            raise InputError(
                message, field=option_of(name), code=ErrorCode.SYNTAX
            ) from None
    units = {"memory": "B", "bandwidth": "B/s", "node_bandwidth": "B/s"}
    for name in (name for name in units if name in settings):
        with errors_about(option_of(name)):
            settings[name] = parse_number(settings[name], units[name])
    recomputations = map(str.strip, settings["recompute"].split(","))
    with about_options({name: option_of(name) for name in Sizes.model_fields}):
        for shared, how in product(
            dict.fromkeys(settings["tensor_parallel"]), dict.fromkeys(recomputations)
        ):
            yield Sizes.parse(settings | {"tensor_parallel": shared, "recompute": how})
