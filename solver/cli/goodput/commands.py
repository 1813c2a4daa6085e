"""``ppsolve goodput``: step times fitted to observations, and the best configurations by them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.charts import Chart, check_chart, check_outputs, write_chart
from ppsolve.solver.cli.counts import MOST_NUMBERS, broadcast, parse_counts
from ppsolve.solver.cli.goodput.job import (
    Job,
    about_options,
    given_grad,
    lack,
    read_job,
    warn_of_guesses,
)
from ppsolve.solver.cli.guard import ExitCode, say
from ppsolve.solver.cli.output import deliver, stdout_console

if TYPE_CHECKING:
    from ppsolve.models.goodput.result import GoodputRows
    from ppsolve.solver.render.line_chart import LineChart

JOB = "Job"

ObservationFile = Annotated[
    Path,
    typer.Argument(
        metavar="OBSERVATIONS",
        help="Measured steps, times in seconds: JSON list, or CSV if named .csv; - is stdin.",
        show_default=False,
    ),
]
ParamsFile = Annotated[
    Path,
    typer.Argument(
        metavar="PARAMS", help="Parameters, as `fit` writes them; - is stdin.", show_default=False
    ),
]
Starts = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Descents to try [5].", rich_help_panel=opt.SEARCH),
]
InitBatchSize = Annotated[
    float | None,
    typer.Option(metavar="N", min=0, help="Batch size of efficiency 1.", rich_help_panel=JOB),
]
GradSqr = Annotated[
    float | None,
    typer.Option(
        metavar="X", min=0, help="Squared norm of the mean gradient.", rich_help_panel=JOB
    ),
]
GradVar = Annotated[
    float | None,
    typer.Option(metavar="Y", min=0, help="Variance of the gradient.", rich_help_panel=JOB),
]
Nodes = Annotated[
    str, typer.Option(metavar="LIST", help="Nodes: 1,2,4 or 1-8.", rich_help_panel=JOB)
]
Replicas = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        help="Replicas over all nodes, one for each of the nodes given.",
        show_default=False,
        rich_help_panel=JOB,
    ),
]
PerReplica = Annotated[
    str,
    typer.Option(
        "--batch-per-replica",
        metavar="LIST",
        help="Samples of a micro-batch of each replica.",
        show_default=False,
        rich_help_panel=JOB,
    ),
]
AccumulationSteps = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        help="Micro-batches before the one that exchanges gradients.",
        rich_help_panel=JOB,
    ),
]
MaxBatchSize = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        help="Largest batch over all replicas.",
        show_default=False,
        rich_help_panel=opt.LIMITS,
    ),
]
MinPerReplica = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="Least micro-batch of a replica [1].", rich_help_panel=opt.LIMITS
    ),
]
MaxPerReplica = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Largest micro-batch of a replica [none].",
        rich_help_panel=opt.LIMITS,
    ),
]
Accumulation = Annotated[
    bool,
    typer.Option("--accumulation", help="Allow accumulation steps.", rich_help_panel=opt.LIMITS),
]
Compat = Annotated[
    bool,
    typer.Option(
        "--compat",
        help="The published search: 50 batch sizes, may exceed the largest batch.",
        rich_help_panel=opt.SEARCH,
    ),
]
Grid = Annotated[
    bool,
    typer.Option("--grid", help="All pairs of nodes and replicas instead.", rich_help_panel=JOB),
]


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
    from ppsolve.models.documents.files import source_name
    from ppsolve.models.goodput.files import ParamsDocument, load_observations
    from ppsolve.solver.goodput.fit import DEFAULT_STARTS, fit_goodput
    from ppsolve.solver.render.goodput.report import fit_line, fit_report

    observed = load_observations(observations)
    with about_options():
        grad = given_grad(grad_sqr, grad_var)
        fitted = fit_goodput(
            *observed.columns(), starts=DEFAULT_STARTS if starts is None else starts
        )
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
    from ppsolve.models.goodput.result import GoodputRows
    from ppsolve.solver.goodput.rows import predicted_rows

    job = read_job(params, grad_sqr, grad_var, init_batch_size)
    with about_options():
        rows = predicted_rows(job.perf, job.model, configurations)
    warn_of_guesses(job, [(nodes, replicas) for nodes, replicas, *_ in configurations])
    size = None if job.model is None else job.model.init_batch_size
    answer = GoodputRows(what="prediction", init_batch_size=size, rows=rows)
    if not deliver(answer, output, as_json=as_json):
        from ppsolve.solver.render.goodput.report import rows_table

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
    per_replica = (min_per_replica, max_per_replica)
    found = _optimum(job, allocations, max_batch_size, per_replica, accumulation, compat)
    write_chart(chart, found.charts)
    is_found = any(row.is_allowed for row in found.answer.rows)
    if not deliver(found.answer, output, as_json=as_json) and is_found:
        _print_optimum(found, is_grid=grid, quiet=quiet)
    if not is_found:
        say(f"{params}: the limits allow no configuration of any of these allocations")
        raise typer.Exit(ExitCode.INFEASIBLE)


@dataclass(frozen=True)
class _Optimum:
    answer: GoodputRows
    charts: list[LineChart]


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
    from ppsolve.models.documents.errors import InputError

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


def _optimum(
    job: Job,
    allocations: list[tuple[int, int]],
    max_batch_size: int,
    per_replica: tuple[int | None, int | None],
    accumulation: bool,
    compat: bool,
) -> _Optimum:
    from ppsolve.models.documents.errors import InputError
    from ppsolve.models.goodput.result import GoodputRows
    from ppsolve.solver.goodput.rows import best_rows
    from ppsolve.solver.goodput.search import BatchLimits
    from ppsolve.solver.render.goodput.chart import goodput_charts

    model = job.model
    if model is None:
        raise InputError(lack(job.path))
    with about_options():
        limits = BatchLimits.of(
            model.init_batch_size, max_batch_size, per_replica, accumulation, compat
        )
        rows = best_rows(
            model,
            allocations,
            max_batch_size,
            per_replica,
            accumulation=accumulation,
            compat=compat,
        )
    answer = GoodputRows(what="optimum", init_batch_size=model.init_batch_size, rows=rows)
    return _Optimum(answer, goodput_charts(model, rows, limits))


def _print_optimum(found: _Optimum, *, is_grid: bool, quiet: bool) -> None:
    from rich.text import Text

    from ppsolve.solver.render.goodput.report import grid_table, row_line, rows_table

    console, rows = stdout_console(), found.answer.rows
    if quiet:
        for row in rows:
            console.print(row_line(row), soft_wrap=True)
        return
    console.print((grid_table if is_grid else rows_table)(rows))
    for chart in found.charts:
        console.print(Text(), chart, sep="\n")
