"""``ppsolve goodput``: step times fitted to observations, and the best configurations by them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.files import source_name
from ppsolve.models.studies.goodput.files import (
    GoodputRows,
    ParamsDocument,
    load_observations,
    load_params,
)
from ppsolve.models.studies.goodput.params import GradParams
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import ExitCode, about_options, say
from ppsolve.solver.cli.inputs import broadcast, parse_counts
from ppsolve.solver.cli.options import argument, flag, value
from ppsolve.solver.cli.output import (
    Chart,
    check_outputs,
    deliver,
    stdout_console,
    write_chart,
)
from ppsolve.solver.studies.goodput.fit import fit_goodput
from ppsolve.solver.studies.goodput.model import GoodputModel, best_rows
from ppsolve.solver.studies.goodput.search import BatchLimits
from ppsolve.solver.views.figures import counted
from ppsolve.solver.views.goodput import fit_report, goodput_chart, rows_table

ParamsFile = Annotated[
    Path, argument("PARAMS", "Parameters, as `fit` writes them; - is stdin.")
]
InitBatchSize = Annotated[
    float | None, value("N", "Batch size of efficiency 1.", min=0)
]
GradSqr = Annotated[
    float | None, value("X", "Squared norm of the mean gradient.", min=0)
]
GradVar = Annotated[float | None, value("Y", "Variance of the gradient.", min=0)]
Nodes = Annotated[str, value("LIST", "Nodes: 1,2,4 or 1-8.")]
Replicas = Annotated[
    str, value("LIST", "Replicas over all nodes, one number per entry of --nodes.")
]

OPTION_OF = {
    "num_nodes": "--nodes",
    "num_replicas": "--replicas",
    "max_batch_size": "--max-batch-size",
    "atomic_bsz_range[0]": "--min-per-replica",
    "atomic_bsz_range[1]": "--max-per-replica",
    "atomic_bsz_range": "--min-per-replica, --max-per-replica",
    "init_batch_size": "--init-batch-size",
    "sqr": "--grad-sqr",
    "var": "--grad-var",
}
"""Options by the library's names."""

group = typer.Typer(no_args_is_help=True, help="Goodput of data-parallel jobs.")


@group.command("fit", short_help="Fit step times to observations.")
def goodput_fit_command(
    observations: Annotated[
        Path,
        argument(
            "OBSERVATIONS",
            "Measured steps, times in seconds: JSON list, or CSV if named .csv; - is stdin.",
        ),
    ],
    init_batch_size: InitBatchSize = None,
    grad_sqr: GradSqr = None,
    grad_var: GradVar = None,
    as_json: opt.Json = False,
    output: opt.Output = None,
    verbose: opt.Verbose = False,
) -> None:
    """Fit the seven parameters of the step time to measured steps.

    Columns: num_nodes, num_replicas, atomic_bsz (micro-batch of a replica), accum_step_time and
    optim_step_time (a step without and with gradient exchange, seconds). `optimize` reads the
    parameters that -o writes, with the initial batch size and the gradient statistics.
    """
    check_outputs({"--output": output}, observations)
    observed = load_observations(observations)
    with about_options(OPTION_OF):
        grad = _given_grad(grad_sqr, grad_var)
        fitted = fit_goodput(*observed.columns())
        document = ParamsDocument.of(fitted, grad=grad, init_batch_size=init_batch_size)
    if not deliver(document, output, as_json=as_json):
        title = f"{source_name(observations)}: {counted(len(observed), 'observation')}"
        stdout_console().print(fit_report(title, fitted))
        return
    say(*(f"warning: {warning}" for warning in fitted.warnings))


@group.command("optimize", short_help="Choose batch sizes for given allocations.")
def goodput_optimize_command(
    params: ParamsFile,
    replicas: Replicas,
    max_batch_size: Annotated[
        int, value("N", "Largest batch over all replicas.", min=1)
    ],
    nodes: Nodes = "1",
    min_per_replica: Annotated[
        int | None, value("N", "Smallest micro-batch of a replica [1].", min=1)
    ] = None,
    max_per_replica: Annotated[
        int | None, value("N", "Largest micro-batch of a replica [none].", min=1)
    ] = None,
    accumulation: Annotated[
        bool, flag("Allow accumulation steps.", "--accumulation")
    ] = False,
    compat: Annotated[
        bool,
        flag(
            "The published search: 50 batch sizes, may exceed the largest batch.",
            "--compat",
        ),
    ] = False,
    init_batch_size: InitBatchSize = None,
    grad_sqr: GradSqr = None,
    grad_var: GradVar = None,
    as_json: opt.Json = False,
    output: opt.Output = None,
    chart: Chart = None,
    verbose: opt.Verbose = False,
) -> None:
    """Choose the batch size with the highest goodput for each allocation.

    --nodes 1,1,2 --replicas 1,4,16 are three allocations. Needs gradient statistics and the initial
    batch size, from PARAMS or as options. Exit codes: 0 found, 2 wrong input, 3 the limits allow no
    configuration at all.
    """
    check_outputs({"--output": output, "--chart": chart}, params)
    lists = {
        "--nodes": parse_counts(nodes, "--nodes"),
        "--replicas": parse_counts(replicas, "--replicas"),
    }
    allocations = [(a, b) for a, b in broadcast(lists)]
    model, not_fitted = _read_model(params, grad_sqr, grad_var, init_batch_size)
    _warn_of_guesses(params, not_fitted, allocations)
    initial, per_replica = model.init_batch_size, (min_per_replica, max_per_replica)
    with about_options(OPTION_OF):
        limits = BatchLimits.of(
            initial, max_batch_size, per_replica, accumulation, compat
        )
        rows = best_rows(model, allocations, limits)
    drawn = goodput_chart(model, rows, limits)
    write_chart(chart, drawn)
    is_found = any(row.is_allowed for row in rows)
    answer = GoodputRows(init_batch_size=initial, rows=rows)
    if not deliver(answer, output, as_json=as_json) and is_found:
        console = stdout_console()
        console.print(rows_table(rows))
        if drawn is not None:
            console.print(Text(), drawn, sep="\n")
    if not is_found:
        say(f"{params}: the limits allow no configuration of any of these allocations")
        raise typer.Exit(ExitCode.INFEASIBLE)


def _read_model(
    path: Path,
    grad_sqr: float | None,
    grad_var: float | None,
    init_batch_size: float | None,
) -> tuple[GoodputModel, frozenset[str]]:
    """Read a model and the parameters not fitted; options replace what the file has or lacks."""
    document = load_params(path)
    with about_options(OPTION_OF):
        grad = _given_grad(grad_sqr, grad_var) or document.grad_params
        size = document.init_batch_size if init_batch_size is None else init_batch_size
        if grad is None or size is None:
            raise InputError(
                f"{source_name(path)}: expected gradient statistics and the initial batch size, "
                "in the file or as --grad-sqr, --grad-var and --init-batch-size",
                code=ErrorCode.MISSING,
            )
        model = GoodputModel(document.perf_params, grad, float(size))
    return model, frozenset(document.fixed)


def _warn_of_guesses(
    path: Path, not_fitted: frozenset[str], allocations: Iterable[tuple[int, int]]
) -> None:
    """Warn of parameters that the allocations need and no observation determines."""
    used = set()
    for nodes, replicas in allocations:
        if replicas > 1:
            suffix = "_n" if nodes > 1 else "_r"
            used |= {"alpha" + suffix} | ({"beta" + suffix} if replicas > 2 else set())
    guessed = sorted(used & not_fitted)
    if guessed:
        say(
            f"warning: {source_name(path)}: no observation speaks of {', '.join(guessed)}, "
            "which these allocations need; their gradient exchange is a guess"
        )


def _given_grad(sqr: float | None, var: float | None) -> GradParams | None:
    if (sqr is None) != (var is None):
        field = "--grad-sqr" if sqr is None else "--grad-var"
        raise InputError(
            "expected both --grad-sqr and --grad-var",
            field=field,
            code=ErrorCode.MISSING,
        )
    return None if sqr is None or var is None else GradParams(sqr, var)
