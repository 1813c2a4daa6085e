"""``ppsolve curve``: how much time memory or micro-batches buy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import write_bytes
from ppsolve.models.studies.curve import Curve, Over, SolvedPoint
from ppsolve.solver.api.kinds import load_instance
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import ExitCode, about_file, say
from ppsolve.solver.cli.options import value
from ppsolve.solver.cli.output import check_writable, print_json, save, stdout_console
from ppsolve.solver.studies.cases import TIME_LIMIT
from ppsolve.solver.studies.curve import curve
from ppsolve.solver.views.curve import curve_figure, curve_report
from ppsolve.solver.views.line_chart import chart_format, figure_bytes
from ppsolve.solver.views.plot.sheet import PAPER


def curve_command(
    file: opt.InstanceFile,
    capacity: Annotated[
        str | None,
        value("FROM:TO:STEP", "Capacities: amounts or multiples of p, as 0.5p:2p:0.125p or 4,6,8."),
    ] = None,
    microbatches: Annotated[str | None, value("FROM:TO:STEP", "Numbers of micro-batches.")] = None,
    time_limit: Annotated[
        float, opt.time_limit("Wall seconds for all points.", least=0.1)
    ] = TIME_LIMIT,
    workers: opt.Workers = None,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
    output: opt.Output = None,
    chart: Annotated[Path | None, value("FILE", "Picture, .png or .svg.")] = None,
    quiet: opt.Quiet = False,
) -> None:
    """Find the best makespan and a bound at many capacities or numbers of micro-batches.

    A schedule for less memory holds for more, a bound for more memory holds for less: each point
    helps the others. With -o the curve is written after each search.
    """
    check_writable(output, file)
    if chart is not None:
        check_writable(chart, file, option="--chart")
        form = chart_format(chart)
    given = {Over.CAPACITY: capacity, Over.MICROBATCHES: microbatches}
    over, text = _one_of(given)
    instance = load_instance(file)
    with about_file(instance, file):
        found = curve(
            instance,
            over,
            [text],
            time_limit=time_limit,
            on_point=lambda each: _note(each, output, quiet=quiet),
            workers=workers,
            seed=seed,
        )
    _write(found, output)
    if chart is not None:
        drawn = figure_bytes(lambda: curve_figure(found, found.instance, 5.0), form, PAPER)
        save(chart, drawn)
    if as_json or str(output) == "-":
        print_json(found.written())
    else:
        stdout_console().print(curve_report(found))
    if found.interrupted:
        say("interrupted")
        raise typer.Exit(ExitCode.INTERRUPTED)


def _one_of(given: dict[Over, str | None]) -> tuple[Over, str]:
    chosen = [(over, text) for over, text in given.items() if text is not None]
    if len(chosen) != 1:
        names = ", ".join(f"--{over}" for over in given)
        raise InputError(f"expected exactly one of {names}, e.g. --capacity 0.5p:2p:0.125p")
    return chosen[0]


def _note(found: Curve, output: Path | None, *, quiet: bool) -> None:
    _write(found, output)
    if not quiet:
        note_points(found.wall_seconds, found.points, "points")


def note_points(seconds: float, points: Sequence[SolvedPoint], called: str) -> None:
    """Say on stderr how far a study is.

    Parameters
    ----------
    seconds : float
        Time since it began.
    points : sequence of SolvedPoint
        All of them, solved or not.
    called : str
        What they are called.
    """
    closed = sum(point.gap == 0 for point in points)
    seen = sum(point.value is not None for point in points)
    say(f"{seconds:.0f} s: {seen} of {len(points)} {called} have a schedule, {closed} proved")


def _write(found: Curve, output: Path | None) -> None:
    if output is not None and str(output) != "-":
        write_bytes(output, (json.dumps(found.written(), indent=1) + "\n").encode())
