"""``ppsolve curve`` and ``what-if``: how much time memory, micro-batches and changes buy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.files import write_bytes
from ppsolve.models.studies.curve import Curve, Over, SolvedPoint
from ppsolve.models.studies.what_if import WhatIf
from ppsolve.solver.api.kinds import load_instance
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import ExitCode, about_file, about_options, say
from ppsolve.solver.cli.options import flag, value
from ppsolve.solver.cli.output import (
    check_outputs,
    check_writable,
    deliver,
    print_json,
    save,
    stdout_console,
)
from ppsolve.solver.studies.cases import TIME_LIMIT
from ppsolve.solver.studies.curve import curve, what_if
from ppsolve.solver.views.curve import curve_figure, curve_report
from ppsolve.solver.views.line_chart import chart_format, figure_bytes
from ppsolve.solver.views.page.document import page
from ppsolve.solver.views.plot.sheet import PAPER
from ppsolve.solver.views.what_if import what_if_line, what_if_report, what_if_section


def curve_command(
    file: opt.InstanceFile,
    capacity: Annotated[
        str | None,
        value(
            "FROM:TO:STEP",
            "Capacities: amounts or multiples of p, as 0.5p:2p:0.125p or 4,6,8.",
        ),
    ] = None,
    microbatches: Annotated[
        str | None, value("FROM:TO:STEP", "Numbers of micro-batches.")
    ] = None,
    time_limit: Annotated[
        float, opt.time_limit("Wall seconds for all points.", minimum=0.1)
    ] = TIME_LIMIT,
    runtime: opt.Runtime = None,
    heuristics: Annotated[
        str | None,
        value("A,B", "Run these heuristics at every point too, a column for each."),
    ] = None,
    rates: Annotated[
        bool, flag("Show bubble ratios in place of values and bounds.", "--rates")
    ] = False,
    workers: opt.Workers = None,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
    output: opt.Output = None,
    chart: Annotated[Path | None, value("FILE", "Picture, .png or .svg.")] = None,
    quiet: opt.Quiet = False,
) -> None:
    """Find the best makespan and a bound at many capacities or numbers of micro-batches.

    A schedule for less memory is valid with more, and a bound for more memory holds with less, so
    points share results. With -o the curve is written after each search.
    """
    check_writable(output, file)
    if chart is not None:
        check_writable(chart, file, option="--chart")
        form = chart_format(chart)
    over, text = _one_of({Over.CAPACITY: capacity, Over.MICROBATCHES: microbatches})
    instance = load_instance(file)
    with about_file(instance, file), about_options({"runtime": "--for"}):
        study = curve(
            instance,
            over,
            [text],
            time_limit=time_limit,
            on_point=lambda snapshot: _note(snapshot, output, quiet=quiet),
            compared=opt.split_names(heuristics) or (),
            rates=rates,
            runtime=runtime,
            workers=workers,
            seed=seed,
        )
    _write(study, output)
    if chart is not None:
        drawn = figure_bytes(
            lambda: curve_figure(study, study.instance, 5.0), form, PAPER
        )
        save(chart, drawn)
    if as_json or str(output) == "-":
        print_json(study.written())
    else:
        stdout_console().print(curve_report(study))
    if study.interrupted:
        say("interrupted")
        raise typer.Exit(ExitCode.INTERRUPTED)


def _one_of(ranges: dict[Over, str | None]) -> tuple[Over, str]:
    specified = [(over, text) for over, text in ranges.items() if text is not None]
    if len(specified) != 1:
        names = ", ".join(f"--{over}" for over in ranges)
        raise InputError(
            f"expected exactly one of {names}, e.g. --capacity 0.5p:2p:0.125p",
            code=ErrorCode.CONFLICT,
        )
    return specified[0]


def _note(study: Curve | WhatIf, output: Path | None, *, quiet: bool) -> None:
    points: Sequence[SolvedPoint]
    points, called = (
        (study.points, "points") if isinstance(study, Curve) else (study.rows, "rows")
    )
    _write(study, output)
    if not quiet:
        closed = sum(point.gap == 0 for point in points)
        seen, all_of = sum(point.value is not None for point in points), len(points)
        time = f"{study.wall_seconds:.0f} s"
        say(f"{time}: {seen} of {all_of} {called} have a schedule, {closed} proved")


def _write(study: Curve | WhatIf, output: Path | None) -> None:
    if output is not None and str(output) != "-":
        if isinstance(study, Curve):
            write_bytes(output, (json.dumps(study.written(), indent=1) + "\n").encode())
        else:
            study.save(output)


@dataclass(frozen=True)
class ChangeOptions:
    """The axes of `ppsolve.what_if`, as options."""

    microbatches: Annotated[str | None, value("N,M", "Numbers of micro-batches.")] = (
        None
    )
    slices: Annotated[
        str | None,
        value("K,L", "Slices of each micro-batch: 1,8:balanced (8 equal forwards)."),
    ] = None
    capacity: Annotated[
        str | None,
        value("C,D", "Capacities: amounts or multiples of p, as 4,1.5p or 1p:2p:0.5p."),
    ] = None
    placements: Annotated[
        str | None,
        value("A,B", "Placements: linear,vshape,interleaved:4 (4 per device)."),
    ] = None
    recompute: Annotated[
        str | None,
        value(
            "A,B",
            "Who decides what is recomputed: none, all, stage, window, microbatch.",
        ),
    ] = None
    comm: Annotated[
        str | None, value("xF", "Times of transfers and collectives: x0.5.")
    ] = None
    slow: Annotated[str | None, value("DxF", "A slow device: 2x1.5 for device 2.")] = (
        None
    )
    fillers: Annotated[str | None, value("xF", "Times of fillers: x0 (none), x2.")] = (
        None
    )


@opt.with_option_groups
def what_if_command(
    file: opt.InstanceFile,
    changes: ChangeOptions,
    time_limit: Annotated[
        float, opt.time_limit("Wall seconds in all.", minimum=0.1)
    ] = TIME_LIMIT,
    runtime: opt.Runtime = None,
    workers: opt.Workers = None,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
    output: opt.Output = None,
    html: Annotated[
        Path | None, value("FILE", "Write the table as a page too.")
    ] = None,
    quiet: opt.Quiet = False,
) -> None:
    """Find what changes of a pipeline gain, one at a time and all together.

    The first row is the pipeline as it is; each row has an equal share of the time. If an option
    has several values, every combination has a row.

    Exit codes: 0 a schedule found, 2 wrong input, 3 all rows proven infeasible, 4 no schedule
    found, 130 interrupted.
    """
    check_outputs({"--output": output, "--html": html}, file)
    instance = load_instance(file)
    texts = {name: text for name, text in vars(changes).items() if text is not None}
    with about_file(instance, file), about_options({"runtime": "--for"}):
        study = what_if(
            instance,
            texts,
            time_limit=time_limit,
            on_row=lambda snapshot: _note(snapshot, output, quiet=quiet),
            runtime=runtime,
            workers=workers,
            seed=seed,
        )
    if html is not None:
        save(html, page((), [what_if_section(study)]))
    if not deliver(study, output, as_json=as_json):
        summary = what_if_line(study) if quiet else what_if_report(study)
        stdout_console().print(summary, soft_wrap=quiet)
    raise typer.Exit(_exit_code(study))


def _exit_code(study: WhatIf) -> ExitCode:
    if study.interrupted:
        say("interrupted")
        return ExitCode.INTERRUPTED
    if any(row.value is not None for row in study.rows):
        return ExitCode.FOUND
    is_proved = all(row.status is Status.INFEASIBLE for row in study.rows)
    return ExitCode.INFEASIBLE if is_proved else ExitCode.NOTHING_FOUND
