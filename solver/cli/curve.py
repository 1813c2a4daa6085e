"""``ppsolve curve``: how much time memory, micro-batches or chunks buy."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from ppsolve.models.curve import Curve, Over
from ppsolve.models.documents.base import explain
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json, source_name, write_bytes
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import ExitCode, about_file, say
from ppsolve.solver.cli.output import check_writable, print_json, save, stdout_console
from ppsolve.solver.curve import TIME_LIMIT, Multiple, curve
from ppsolve.solver.generate.flags import parse_number
from ppsolve.solver.optimize.kinds import load_instance
from ppsolve.solver.optimize.owners import refuse_huge_numbers
from ppsolve.solver.render.curve import curve_figure, curve_report
from ppsolve.solver.render.line_chart import chart_format, figure_bytes
from ppsolve.solver.render.plot.sheet import PAPER

MOST_POINTS = 1000

INCHES = 5.0
"""Width of `--chart`: room for curves of many points; `ppsolve show` draws others."""

Capacity = Annotated[
    str | None,
    typer.Option(
        "--capacity",
        metavar="FROM:TO:STEP",
        help="Capacities: amounts or multiples of p, as 0.5p:2p:0.125p or 4,6,8.",
        show_default=False,
    ),
]
Microbatches = Annotated[
    str | None,
    typer.Option("--microbatches", metavar="FROM:TO:STEP", help="Numbers of micro-batches."),
]
Chunks = Annotated[
    str | None,
    typer.Option("--chunks", metavar="FROM:TO", help="Chunks per device, placed interleaved."),
]
TimeLimit = Annotated[float, opt.time_limit("Wall seconds for all points.", least=0.1)]
Figure = Annotated[
    Path | None,
    typer.Option(
        "--chart", metavar="FILE", help="Picture, .png or .svg.", rich_help_panel=opt.OUTPUT
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("curve", short_help="Best makespan over memory, micro-batches or chunks.")(
        curve_command
    )


def curve_command(
    file: opt.InstanceFile,
    capacity: Capacity = None,
    microbatches: Microbatches = None,
    chunks: Chunks = None,
    time_limit: TimeLimit = TIME_LIMIT,
    workers: opt.Workers = None,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
    output: opt.Output = None,
    chart: Figure = None,
    quiet: opt.Quiet = False,
) -> None:
    """Find the best makespan and a bound at many capacities, micro-batches or chunks.

    A schedule for less memory holds for more, a bound for more memory holds for less: each point
    helps the others. With -o the curve is written after each search, and the same command goes on
    with it.
    """
    check_writable(output, file)
    if chart is not None:
        check_writable(chart, file, option="--chart")
        form = chart_format(chart)
    given = {Over.CAPACITY: capacity, Over.MICROBATCHES: microbatches, Over.CHUNKS: chunks}
    over, text = _one_of(given)
    instance = load_instance(file)
    known = None if output is None else _known(output)
    with about_file(instance, file):
        found = curve(
            instance,
            over,
            values_of(text, f"--{over}"),
            time_limit=time_limit,
            known=known,
            on_point=lambda each: _note(each, output, quiet=quiet),
            workers=workers,
            seed=seed,
        )
    _write(found, output)
    if chart is not None:
        drawn = figure_bytes(lambda: curve_figure(found, found.instance, INCHES), form, PAPER)
        save(chart, drawn)
    if as_json or str(output) == "-":
        print_json(found.written())
    else:
        stdout_console().print(curve_report(found))
    if found.interrupted:
        say("interrupted; the same command with -o goes on")
        raise typer.Exit(ExitCode.INTERRUPTED)


def _one_of(given: dict[Over, str | None]) -> tuple[Over, str]:
    chosen = [(over, text) for over, text in given.items() if text is not None]
    if len(chosen) != 1:
        names = ", ".join(f"--{over}" for over in given)
        raise InputError(f"expected exactly one of {names}, e.g. --capacity 0.5p:2p:0.125p")
    return chosen[0]


def values_of(text: str, field: str) -> list[Decimal | Multiple]:
    """Read ``FROM:TO:STEP``, ``FROM:TO`` or a list with commas; all may be multiples of p.

    Parameters
    ----------
    text : str
        Values as they are typed.
    field : str
        The option, for errors.

    Returns
    -------
    list of Decimal or Multiple
        At most `MOST_POINTS`, both ends included where the step meets them.

    Raises
    ------
    InputError
        Names the option and what would be right.
    """
    if ":" not in text:
        return [_value(part, field) for part in text.split(",")]
    parts = [_value(part, field) for part in text.split(":")]
    if len(parts) not in {2, 3} or len({type(part) for part in parts}) > 1:
        raise InputError(f"expected FROM:TO:STEP in one unit, got {text[:40]!r}", field=field)
    is_multiple = isinstance(parts[0], Multiple)
    first, last, *rest = (p.factor if isinstance(p, Multiple) else p for p in parts)
    step = rest[0] if rest else Decimal(1)
    if step <= 0 or last < first:
        raise InputError(f"expected FROM <= TO and STEP > 0, got {text[:40]!r}", field=field)
    count = int((last - first) / step) + 1
    if count > MOST_POINTS:
        raise InputError(f"expected at most {MOST_POINTS} points, got {count}", field=field)
    values = [first + place * step for place in range(count)]
    return [Multiple(value) if is_multiple else value for value in values]


def _value(text: str, field: str) -> Decimal | Multiple:
    word = text.strip().lower()
    try:
        if word.endswith("p"):
            return Multiple(parse_number(word[:-1] or "1"))
        return parse_number(word)
    except InputError as error:
        raise InputError(error.message, field=field) from None


def _known(output: Path) -> Curve | None:
    """Return the curve that an earlier run of this command left in its output file."""
    if str(output) == "-" or not output.exists():
        return None
    try:
        data = read_json(output)
    except InputError as error:
        raise error.about("--output") from None
    if not isinstance(data, dict) or data.get("kind") != "curve":
        raise InputError(
            "this is no curve and would be replaced, give another file",
            source=source_name(output),
            field="--output",
        )
    refuse_huge_numbers(data, source_name(output))
    try:
        return Curve.model_validate(data)
    except ValidationError as error:
        raise explain(error, Curve, source_name(output)) from None


def _note(found: Curve, output: Path | None, *, quiet: bool) -> None:
    """Write the curve so far, and tell how far it is."""
    _write(found, output)
    if not quiet:
        closed = sum(point.gap == 0 for point in found.points)
        seen = sum(point.value is not None for point in found.points)
        count = len(found.points)
        say(
            f"{found.wall_seconds:.0f} s: {seen} of {count} points have a schedule, {closed} proved"
        )


def _write(found: Curve, output: Path | None) -> None:
    if output is not None and str(output) != "-":
        write_bytes(output, (json.dumps(found.written(), indent=1) + "\n").encode())
