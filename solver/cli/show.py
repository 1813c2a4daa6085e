"""``ppsolve show``: a schedule as a chart and its figures, or an instance in short."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import RenderableType

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicEntry, Result, ScheduleDocument
from ppsolve.models.documents.base import as_finite, explain, field_path
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.models.instances import Instance
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.doubts import note_rounding, question_units
from ppsolve.solver.cli.guard import about_file, say
from ppsolve.solver.cli.orders import expect_orders, print_order
from ppsolve.solver.cli.output import MIN_WIDTH, stdout_console
from ppsolve.solver.cli.simulate import refuse_not_applicable, simulate_entry
from ppsolve.solver.optimize.kinds import is_result, kind_of, known_kind, parse_instance
from ppsolve.solver.render.drawing import Frame
from ppsolve.solver.render.drawings import drawing_of, drawing_of_document
from ppsolve.solver.render.figures import figures
from ppsolve.solver.render.schedule_view import Window

MAX_EXPONENT = 30
"""Numbers of more digits before the point are no times that anything could be drawn of."""

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="INSTANCE [RESULT]",
        help="Instance and its result, a result alone, or an instance with --heuristic.",
        show_default=False,
    ),
]
HeuristicName = Annotated[
    str | None, typer.Option("--heuristic", metavar="NAME", help="Draw what this heuristic does.")
]
Links = Annotated[bool, typer.Option("--links", help="Also draw links and comm streams.")]
Order = Annotated[
    bool,
    typer.Option(
        "--order",
        help="Only print the order: a line per name (kind overlap) or per device (pipeline).",
    ),
]
Width = Annotated[
    int | None, typer.Option(metavar="N", min=MIN_WIDTH, help="Columns [the terminal's].")
]
First = Annotated[float, typer.Option("--from", metavar="T", min=0, help="Draw from here.")]
Last = Annotated[float | None, typer.Option("--to", metavar="T", min=0, help="Draw up to here.")]
Iteration = Annotated[
    str | None,
    typer.Option(metavar="K", help="Draw iteration K (or K-L), from 0, of a K-FAC refresh."),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("show")(show_command)


def show_command(
    files: Files,
    heuristic: HeuristicName = None,
    group_size: opt.GroupSize = None,
    links: Links = False,
    first: First = 0.0,
    last: Last = None,
    iteration: Iteration = None,
    order: Order = False,
    width: Width = None,
    exact: opt.Exact = False,
    verbose: opt.Verbose = False,
) -> None:
    """Draw a schedule in the terminal, with its figures.

    `show INSTANCE RESULT` knows capacities and links; `show RESULT` needs no instance;
    `show INSTANCE --heuristic NAME` draws a heuristic; `show INSTANCE` describes it.
    """
    given = _read(files)
    window = (first, None if last == inf else last)
    frame = Frame(links, window, _iterations(iteration, window))
    _refuse_contradictions(given, heuristic, window)
    if order:
        _print_order(given, heuristic, exact=exact)
        return
    if given.instance is None:
        view = _of_result(given, frame)
    else:
        with about_file(given.instance, given.instance_source):
            view = _of_instance(given.instance, given, heuristic, group_size, frame, exact=exact)
    stdout_console(width).print(view)


@dataclass(frozen=True)
class _Given:
    """What the files hold: an instance, the data of a result, or both."""

    instance: Instance | None = None
    instance_source: str = ""
    data: Any = None
    source: str = ""


def _iterations(text: str | None, window: tuple[float, float | None]) -> tuple[int, int] | None:
    """Return the first and the last iteration that ``3`` or ``3-5`` names."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", text.strip(), re.ASCII)
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise InputError(f"expected K or K-L, got {text[:40]!r}", field="--iteration")
    if window != (0.0, None):
        raise InputError("expected either iterations or times", field="--iteration")
    return int(found[1]), int(found[2] or found[1])


def _read(files: list[Path]) -> _Given:
    """Read one or two files, in either order: an instance is what has a ``kind``."""
    if len(files) > 2 or [str(file) for file in files] == ["-", "-"]:
        raise InputError("expected an instance, a result, or one of each")
    given = _Given()
    for file in files:
        data, source = read_json(file), source_name(file)
        if is_result(data):
            if given.data is not None:
                raise InputError("expected an instance, this is a second result", source=source)
            given = replace(given, data=data, source=source)
        elif given.instance is not None:
            raise InputError("expected a result (with a schedule) here", source=source)
        else:
            instance = parse_instance(data, source)
            question_units(instance, source)
            given = replace(given, instance=instance, instance_source=source)
    return given


def _refuse_contradictions(given: _Given, heuristic: str | None, window: Window) -> None:
    first, last = window
    if last is not None and last <= first:
        least, got = figures(first, last)
        raise InputError(f"expected more than --from ({least}), got {got}", field="--to")
    if heuristic is not None and given.instance is None:
        raise InputError("a heuristic needs an instance, not a result", field="--heuristic")
    if heuristic is not None and given.data is not None:
        raise InputError("expected either a result or a heuristic", field="--heuristic")


def _print_order(given: _Given, heuristic: str | None, *, exact: bool) -> None:
    """Print the order of a result, or the one that a heuristic makes."""
    instance = given.instance
    if instance is not None:
        expect_orders(instance, given.instance_source, "--order")
    if instance is None or given.data is not None:
        print_order(_owner(given.data, given.source), given.source)
        return
    if heuristic is None:
        raise InputError("expected a RESULT or --heuristic NAME beside it", field="--order")
    with about_file(instance, given.instance_source):
        entry = simulate_entry(instance, heuristic, group_size=None, exact=exact)
    refuse_not_applicable(entry)
    print_order(entry, f"{given.instance_source}, {heuristic}")
    _warn_of_reason(entry)


def _of_instance(
    instance: Instance,
    given: _Given,
    heuristic: str | None,
    group_size: int | None,
    frame: Frame,
    *,
    exact: bool,
) -> RenderableType:
    if heuristic is not None:
        entry = simulate_entry(instance, heuristic, group_size=group_size, exact=exact)
        return _of_entry(instance, entry, frame, exact=exact)
    if given.data is not None:
        return _of_instance_and_result(instance, given, frame, exact=exact)
    problem = kind_of(instance).lower(instance, exact=exact)
    _note_ticks(problem)
    return drawing_of(instance.kind).describe(instance, problem)


def _note_ticks(problem: Problem) -> None:
    note_rounding(problem.scale.time(problem.tick_error), problem.scale.unit)


def _of_instance_and_result(
    instance: Instance, given: _Given, frame: Frame, *, exact: bool
) -> RenderableType:
    data, kind = given.data, kind_of(instance)
    problem = kind.lower(instance, exact=exact, document=data)
    _note_ticks(problem)
    schedule, violations = kind.read(instance, problem, data, given.source)
    if schedule is None:
        raise InputError(f"not a whole schedule: {violations[0]}", source=given.source)
    if violations:
        say(f"warning: {given.source}: {violations[0]} (ppsolve check lists everything)")
    title = _title(instance.name, data.get("best_by") or data.get("name"))
    claimed, drawing = _owner(data, given.source), drawing_of(instance.kind)
    warning = drawing.warning(instance, schedule, claimed)
    if warning is not None:
        say(f"warning: {given.source}: {warning}")
    return drawing.view(title, instance, schedule, claimed, frame)


def _of_entry(
    instance: Instance, entry: HeuristicEntry, frame: Frame, *, exact: bool
) -> RenderableType:
    refuse_not_applicable(entry)
    kind, drawing = kind_of(instance), drawing_of(instance.kind)
    if entry.schedule is None:
        why = drawing.reason(entry)
        raise InputError(f"{entry.name} gives no schedule: {why}", source=instance.name)
    document = entry.schedule.model_dump(mode="json")
    problem = kind.lower(instance, exact=exact, document=document)
    _note_ticks(problem)
    schedule = kind.read(instance, problem, document)[0]
    if schedule is None:
        raise InputError(f"{entry.name} gives no schedule: {entry.reason}", source=instance.name)
    _warn_of_reason(entry)
    return drawing.view(_title(instance.name, entry.name), instance, schedule, entry, frame)


def _warn_of_reason(entry: HeuristicEntry) -> None:
    if entry.reason:
        say(f"warning: {entry.status.value}: {drawing_of(entry.kind).reason(entry)}")


def _of_result(given: _Given, frame: Frame) -> RenderableType:
    data = given.data
    written = data.get("schedule", data)
    if not isinstance(written, dict) or not written.get("ops"):
        raise InputError("there is no schedule in it", source=given.source)
    _refuse_huge_numbers(data, given.source)
    try:
        document = ScheduleDocument.model_validate(written)
    except ValidationError as error:
        raise explain(error, ScheduleDocument, given.source) from None
    title = _title(data.get("instance", "schedule"), data.get("best_by") or data.get("name"))
    source = _owner(data, given.source)
    if source is not None:
        note_rounding(source.tick_error, document.time_unit)
    try:
        return drawing_of_document(document).view_alone(title, document, source, frame)
    except InputError as error:
        raise error.located(given.source) from None


def _owner(data: dict[str, Any], source: str) -> Result | HeuristicEntry | None:
    """Return the result or heuristic entry that `data` is, None for a bare schedule."""
    models = _models_of(data)
    if "instance" in data:
        model: type[Result | HeuristicEntry] = models[0]
    elif "name" in data:
        model = models[1]
    else:
        return None
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise explain(error, model, source) from None


def _models_of(data: dict[str, Any]) -> tuple[type[Result], type[HeuristicEntry]]:
    """Return the models of a result and of an entry of the kind that `data` names."""
    named = data.get("kind")
    kind = known_kind(named) if isinstance(named, str) else None
    return (Result, HeuristicEntry) if kind is None else kind.documents(data.get("value_unit"))


def _refuse_huge_numbers(data: Any, source: str) -> None:
    """Refuse numbers that would take the validation of whole numbers forever, or crash it."""
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), data)]
    while waiting:
        at, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [((*at, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [((*at, index), inner) for index, inner in enumerate(value)]
        elif isinstance(value, Decimal) and value.adjusted() > MAX_EXPONENT:
            try:
                as_finite(value)
            except ValueError as error:
                raise InputError(str(error), source=source, field=field_path(at)) from None


def _title(name: Any, by: Any) -> str:
    return f"{name}, {by}" if by else str(name)
