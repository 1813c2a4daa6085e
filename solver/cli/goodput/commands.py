"""``ppsolve goodput``: step times fitted to observations, and the best configurations by them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import source_name
from ppsolve.models.goodput.files import GoodputRow, GoodputRows, ParamsDocument, load_observations
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.charts import Chart, check_chart, check_outputs, write_chart
from ppsolve.solver.cli.counts import MOST_NUMBERS, broadcast, parse_counts
from ppsolve.solver.cli.goodput.job import (
    about_options,
    given_grad,
    lack,
    read_job,
    warn_of_guesses,
)
from ppsolve.solver.cli.guard import ExitCode, say
from ppsolve.solver.cli.output import deliver, stdout_console
from ppsolve.solver.goodput.fit import fit_goodput
from ppsolve.solver.goodput.identify import FIT
from ppsolve.solver.goodput.model import best_rows, predicted_rows
from ppsolve.solver.goodput.search import BatchLimits
from ppsolve.solver.render.goodput import (
    fit_line,
    fit_report,
    goodput_charts,
    grid_table,
    row_line,
    rows_table,
)
from ppsolve.solver.render.line_chart import LineChart

in_job = partial(typer.Option, rich_help_panel="Job")
in_limits = partial(typer.Option, rich_help_panel=opt.LIMITS)
in_search = partial(typer.Option, rich_help_panel=opt.SEARCH)
argument = partial(typer.Argument, show_default=False)

OBSERVED = "Measured steps, times in seconds: JSON list, or CSV if named .csv; - is stdin."
ObservationFile = Annotated[Path, argument(metavar="OBSERVATIONS", help=OBSERVED)]
ParamsFile = Annotated[
    Path, argument(metavar="PARAMS", help="Parameters, as `fit` writes them; - is stdin.")
]
Starts = Annotated[int | None, in_search(metavar="N", min=1, help="Descents to try [5].")]
InitBatchSize = Annotated[
    float | None, in_job(metavar="N", min=0, help="Batch size of efficiency 1.")
]
GradSqr = Annotated[
    float | None, in_job(metavar="X", min=0, help="Squared norm of the mean gradient.")
]
GradVar = Annotated[float | None, in_job(metavar="Y", min=0, help="Variance of the gradient.")]
Nodes = Annotated[str, in_job(metavar="LIST", help="Nodes: 1,2,4 or 1-8.")]
REPLICAS = "Replicas over all nodes, one for each of the nodes given."
Replicas = Annotated[str, in_job(metavar="LIST", help=REPLICAS, show_default=False)]
PER_REPLICA = "Samples of a micro-batch of each replica."
PerReplica = Annotated[
    str, in_job("--batch-per-replica", metavar="LIST", help=PER_REPLICA, show_default=False)
]
AccumulationSteps = Annotated[
    str, in_job(metavar="LIST", help="Micro-batches before the one that exchanges gradients.")
]
MaxBatchSize = Annotated[
    int, in_limits(metavar="N", min=1, help="Largest batch over all replicas.", show_default=False)
]
MinPerReplica = Annotated[
    int | None, in_limits(metavar="N", min=1, help="Least micro-batch of a replica [1].")
]
MaxPerReplica = Annotated[
    int | None, in_limits(metavar="N", min=1, help="Largest micro-batch of a replica [none].")
]
Accumulation = Annotated[bool, in_limits("--accumulation", help="Allow accumulation steps.")]
COMPAT = "The published search: 50 batch sizes, may exceed the largest batch."
Compat = Annotated[bool, in_search("--compat", help=COMPAT)]
Grid = Annotated[bool, in_job("--grid", help="All pairs of nodes and replicas instead.")]


def register(app: typer.Typer) -> None:
    """Add the command group to `app`."""
    group = typer.Typer(no_args_is_help=True, help="Goodput of data-parallel jobs.")
    group.command("fit", short_help="Fit step times to observations.")(goodput_fit_command)
    group.command("predict", short_help="Predict given configurations.")(goodput_predict_command)
    group.command("optimize", short_help="Choose batch sizes of given allocations.")(
        goodput_optimize_command
    )
    group.callback()(_group)
    app.add_typer(group, name="goodput")


def _group() -> None:
    """Goodput of data-parallel jobs: fit step times, predict, choose batch sizes."""


def goodput_fit_command(
    observations: ObservationFile,
    starts: Starts = None,
    init_batch_size: InitBatchSize = None,
    grad_sqr: GradSqr = None,
    grad_var: GradVar = None,
    as_json: opt.Json = False,
    output: opt.Output = None,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Fit the seven parameters of the step time to measured steps.

    Columns: num_nodes, num_replicas, atomic_bsz (micro-batch of a replica), accum_step_time and
    optim_step_time (a step without and with gradient exchange, seconds). The parameters written
    by -o are what `predict` and `optimize` read; initial batch size and gradient statistics are
    stored along.
    """
    check_outputs({"--output": output}, observations)
    observed = load_observations(observations)
    with about_options():
        grad = given_grad(grad_sqr, grad_var)
        fitted = fit_goodput(*observed.columns(), starts=FIT.starts if starts is None else starts)
        document = ParamsDocument.of(fitted, grad=grad, init_batch_size=init_batch_size)
    is_table = False
    if not deliver(document, output, as_json=as_json):
        number = "1 observation" if len(observed) == 1 else f"{len(observed):,} observations"
        title = f"{source_name(observations)}: {number}"
        shown = fit_line(title, fitted) if quiet else fit_report(title, fitted)
        stdout_console().print(shown, soft_wrap=quiet)
        is_table = not quiet
    for warning in () if is_table else fitted.warnings:
        say(f"warning: {warning}")


def goodput_predict_command(
    params: ParamsFile,
    replicas: Replicas,
    batch_per_replica: PerReplica,
    nodes: Nodes = "1",
    accumulation_steps: AccumulationSteps = "0",
    init_batch_size: InitBatchSize = None,
    grad_sqr: GradSqr = None,
    grad_var: GradVar = None,
    as_json: opt.Json = False,
    output: opt.Output = None,
    verbose: opt.Verbose = False,
) -> None:
    """Predict step time, throughput, efficiency and goodput of configurations.

    Lists go together row by row; a single number goes with every row. Efficiency and goodput need
    gradient statistics and the initial batch size.
    """
    check_outputs({"--output": output}, params)
    configurations = _configurations(nodes, replicas, batch_per_replica, accumulation_steps)
    job = read_job(params, grad_sqr, grad_var, init_batch_size)
    with about_options():
        rows = predicted_rows(job.perf, job.model, configurations)
    warn_of_guesses(job, [(nodes, replicas) for nodes, replicas, *_ in configurations])
    size = None if job.model is None else job.model.init_batch_size
    answer = GoodputRows(what="prediction", init_batch_size=size, rows=rows)
    if not deliver(answer, output, as_json=as_json):
        stdout_console().print(rows_table(rows))
        if job.model is None:
            say(f"note: no efficiency and goodput: {lack(params)}")


def goodput_optimize_command(
    params: ParamsFile,
    replicas: Replicas,
    max_batch_size: MaxBatchSize,
    nodes: Nodes = "1",
    grid: Grid = False,
    min_per_replica: MinPerReplica = None,
    max_per_replica: MaxPerReplica = None,
    accumulation: Accumulation = False,
    compat: Compat = False,
    init_batch_size: InitBatchSize = None,
    grad_sqr: GradSqr = None,
    grad_var: GradVar = None,
    as_json: opt.Json = False,
    output: opt.Output = None,
    chart: Chart = None,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Choose the batch size with the highest goodput for each allocation.

    --nodes 1,1,2 --replicas 1,4,16 are three allocations; --grid takes every pair. Needs gradient
    statistics and the initial batch size, from PARAMS or as options. Exit codes: 0 found, 2 wrong
    input, 3 the limits allow no configuration at all.
    """
    check_outputs({"--output": output, "--chart": chart}, params)
    check_chart(chart)
    allocations = _allocations(nodes, replicas, is_grid=grid)
    job = read_job(params, grad_sqr, grad_var, init_batch_size)
    warn_of_guesses(job, allocations)
    if job.model is None:
        raise InputError(lack(job.path))
    least, per_replica = job.model.init_batch_size, (min_per_replica, max_per_replica)
    with about_options():
        limits = BatchLimits.of(least, max_batch_size, per_replica, accumulation, compat)
        rows = best_rows(job.model, allocations, limits)
    charts = goodput_charts(job.model, rows, limits)
    write_chart(chart, charts)
    is_found = any(row.is_allowed for row in rows)
    answer = GoodputRows(what="optimum", init_batch_size=least, rows=rows)
    if not deliver(answer, output, as_json=as_json) and is_found:
        _print_optimum(rows, charts, is_grid=grid, quiet=quiet)
    if not is_found:
        say(f"{params}: the limits allow no configuration of any of these allocations")
        raise typer.Exit(ExitCode.INFEASIBLE)


def _configurations(
    nodes: str, replicas: str, batch_per_replica: str, accumulation_steps: str
) -> list[tuple[int, int, int, int]]:
    """Return the rows that four options list together."""
    given = {
        "--nodes": nodes,
        "--replicas": replicas,
        "--batch-per-replica": batch_per_replica,
        "--accumulation-steps": accumulation_steps,
    }
    lists = {option: parse_counts(text, option) for option, text in given.items()}
    return [(a, b, c, d) for a, b, c, d in broadcast(lists)]


def _allocations(nodes: str, replicas: str, *, is_grid: bool) -> list[tuple[int, int]]:
    """Return nodes and replicas row by row, or every pair that is possible."""
    lists = {
        "--nodes": parse_counts(nodes, "--nodes"),
        "--replicas": parse_counts(replicas, "--replicas"),
    }
    if not is_grid:
        return [(a, b) for a, b in broadcast(lists)]
    if len(lists["--nodes"]) * len(lists["--replicas"]) > MOST_NUMBERS:
        raise InputError(f"expected at most {MOST_NUMBERS:,} pairs", field="--grid")
    pairs = [(a, b) for a in lists["--nodes"] for b in lists["--replicas"] if a <= b]
    if not pairs:
        raise InputError("expected at most as many nodes as replicas in some pair", field="--grid")
    return pairs


def _print_optimum(
    rows: Sequence[GoodputRow], charts: Sequence[LineChart], *, is_grid: bool, quiet: bool
) -> None:
    console = stdout_console()
    if quiet:
        for row in rows:
            console.print(row_line(row), soft_wrap=True)
        return
    console.print((grid_table if is_grid else rows_table)(rows))
    for chart in charts:
        console.print(Text(), chart, sep="\n")
