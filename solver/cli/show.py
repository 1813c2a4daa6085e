"""``ppsolve show``: a schedule as a chart and its figures, or an instance in short."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import about_file, say
from ppsolve.solver.cli.output import MIN_WIDTH, stdout_console
from ppsolve.solver.cli.simulate import refuse_not_applicable, simulate_entry

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import RenderableType

    from ppsolve.models.instances import Instance
    from ppsolve.models.result import HeuristicEntry

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
Width = Annotated[
    int | None, typer.Option(metavar="N", min=MIN_WIDTH, help="Columns [the terminal's].")
]
First = Annotated[float, typer.Option("--from", metavar="T", min=0, help="Draw from here.")]
Last = Annotated[float | None, typer.Option("--to", metavar="T", min=0, help="Draw up to here.")]


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
    width: Width = None,
    round_up: opt.RoundUp = False,
    verbose: opt.Verbose = False,
) -> None:
    """Draw a schedule in the terminal, with its figures.

    `show INSTANCE RESULT` knows capacities and links; `show RESULT` needs no instance;
    `show INSTANCE --heuristic NAME` draws a heuristic; `show INSTANCE` describes it.
    """
    given = _read(files)
    drawing = _Drawing(links, (first, None if last == inf else last), round_up)
    _refuse_contradictions(given, heuristic, drawing)
    if given.instance is None:
        view = _of_result(given, drawing)
    else:
        with about_file(given.instance, given.instance_source):
            view = _of_instance(given.instance, given, heuristic, group_size, drawing)
    stdout_console(width).print(view)


@dataclass(frozen=True)
class _Given:
    """What the files hold: an instance, the data of a result, or both."""

    instance: Instance | None = None
    instance_source: str = ""
    data: Any = None
    source: str = ""


@dataclass(frozen=True)
class _Drawing:
    links: bool
    window: tuple[float, float | None]
    round_up: bool

    def keywords(self) -> dict[str, Any]:
        return {"links": self.links, "window": self.window}


def _read(files: list[Path]) -> _Given:
    """Read one or two files, in either order: an instance is what has a ``kind``."""
    from ppsolve.models.errors import InputError
    from ppsolve.models.instances import parse_instance
    from ppsolve.models.io import read_json, source_name

    if len(files) > 2 or [str(file) for file in files] == ["-", "-"]:
        raise InputError("expected an instance, a result, or one of each")
    given = _Given()
    for file in files:
        data, source = read_json(file), source_name(file)
        if isinstance(data, dict) and ("schedule" in data or "ops" in data) and "kind" not in data:
            if given.data is not None:
                raise InputError("expected an instance, this is a second result", source=source)
            given = replace(given, data=data, source=source)
        elif given.instance is not None:
            raise InputError("expected a result (with a schedule) here", source=source)
        else:
            instance = parse_instance(data, source)
            given = replace(given, instance=instance, instance_source=source)
    return given


def _refuse_contradictions(given: _Given, heuristic: str | None, drawing: _Drawing) -> None:
    from ppsolve.models.errors import InputError
    from ppsolve.solver.render.figures import figures

    first, last = drawing.window
    if last is not None and last <= first:
        least, got = figures(first, last)
        raise InputError(f"expected more than --from ({least}), got {got}", field="--to")
    if heuristic is not None and given.instance is None:
        raise InputError("a heuristic needs an instance, not a result", field="--heuristic")
    if heuristic is not None and given.data is not None:
        raise InputError("expected either a result or a heuristic", field="--heuristic")


def _of_instance(
    instance: Instance,
    given: _Given,
    heuristic: str | None,
    group_size: int | None,
    drawing: _Drawing,
) -> RenderableType:
    if heuristic is not None:
        entry = simulate_entry(
            instance, heuristic, group_size=group_size, round_up=drawing.round_up
        )
        return _of_entry(instance, entry, drawing)
    if given.data is not None:
        return _of_instance_and_result(instance, given, drawing)
    return _description(instance, round_up=drawing.round_up)


def _of_instance_and_result(instance: Instance, given: _Given, drawing: _Drawing) -> RenderableType:
    from ppsolve.models.errors import InputError
    from ppsolve.models.given import parse_given
    from ppsolve.models.instances import lower
    from ppsolve.solver.render.schedule_view import view_of_schedule

    problem = lower(instance, round_up=drawing.round_up)
    schedule, violations = parse_given(given.data, problem, given.source)
    if schedule is None:
        raise InputError(f"not a whole schedule: {violations[0]}", source=given.source)
    if violations:
        say(f"warning: {given.source}: {violations[0]} (ppsolve check lists everything)")
    title = _title(instance.name, given.data.get("best_by") or given.data.get("name"))
    return view_of_schedule(title, schedule, **drawing.keywords())


def _of_entry(instance: Instance, entry: HeuristicEntry, drawing: _Drawing) -> RenderableType:
    from ppsolve.models.errors import InputError
    from ppsolve.models.given import parse_given
    from ppsolve.models.instances import lower
    from ppsolve.solver.render.schedule_view import view_of_schedule

    refuse_not_applicable(entry)
    problem = lower(instance, round_up=drawing.round_up)
    schedule = parse_given(entry, problem)[0] if entry.schedule else None
    if schedule is None:
        raise InputError(f"{entry.name} gives no schedule: {entry.reason}", source=instance.name)
    if entry.reason:
        say(f"warning: {entry.status.value}: {entry.reason}")
    return view_of_schedule(_title(instance.name, entry.name), schedule, **drawing.keywords())


def _of_result(given: _Given, drawing: _Drawing) -> RenderableType:
    from pydantic import ValidationError

    from ppsolve.models.base import explain
    from ppsolve.models.errors import InputError
    from ppsolve.models.result import HeuristicEntry, Result, ScheduleDocument
    from ppsolve.solver.render.schedule_view import view_of_document

    data = given.data
    written = data.get("schedule", data)
    if not isinstance(written, dict) or not written.get("ops"):
        raise InputError("there is no schedule in it", source=given.source)
    _refuse_huge_numbers(data, given.source)
    owners: dict[str, type[Result | HeuristicEntry]] = {"instance": Result, "name": HeuristicEntry}
    model: type[BaseModel] = ScheduleDocument
    source = None
    try:
        document = ScheduleDocument.model_validate(written)
        for owner in (owners[key] for key in owners if key in data):
            model = owner
            source = owner.model_validate(data)
            break
    except ValidationError as error:
        raise explain(error, model, given.source) from None
    title = _title(data.get("instance", "schedule"), data.get("best_by") or data.get("name"))
    return view_of_document(title, document, source, **drawing.keywords())


def _refuse_huge_numbers(data: Any, source: str) -> None:
    """Refuse numbers that would take the validation of whole numbers forever, or crash it."""
    from decimal import Decimal

    from ppsolve.models.base import as_finite, field_path
    from ppsolve.models.errors import InputError

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


def _description(instance: Instance, *, round_up: bool) -> RenderableType:
    from ppsolve.models.instances import lower
    from ppsolve.solver.render.instance_view import describe_problem

    return describe_problem(instance, lower(instance, round_up=round_up))
