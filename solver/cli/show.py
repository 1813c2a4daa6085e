"""``ppsolve show``: a schedule as a chart and its figures, or an instance in short."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import about_file, say
from ppsolve.solver.cli.output import MIN_WIDTH, stdout_console
from ppsolve.solver.cli.program_order import expect_program, plain_reason, print_order
from ppsolve.solver.cli.simulate import refuse_not_applicable, simulate_entry

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ppsolve.models.core.problem import Problem
    from ppsolve.models.core.result import HeuristicEntry, Result
    from ppsolve.models.core.schedule import Schedule
    from ppsolve.models.instances import Instance

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
    typer.Option("--order", help="Only print the program order, a name per line (kind overlap)."),
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
    round_up: opt.RoundUp = False,
    verbose: opt.Verbose = False,
) -> None:
    """Draw a schedule in the terminal, with its figures.

    `show INSTANCE RESULT` knows capacities and links; `show RESULT` needs no instance;
    `show INSTANCE --heuristic NAME` draws a heuristic; `show INSTANCE` describes it.
    """
    given = _read(files)
    window = (first, None if last == inf else last)
    drawing = _Drawing(links, window, round_up, _iterations(iteration, window))
    _refuse_contradictions(given, heuristic, drawing)
    if order:
        _print_order(given, heuristic, drawing)
        return
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
    iterations: tuple[int, int] | None = None

    def keywords(self) -> dict[str, Any]:
        return {"links": self.links, "window": self.window, "iterations": self.iterations}


def _iterations(text: str | None, window: tuple[float, float | None]) -> tuple[int, int] | None:
    """Return the first and the last iteration that ``3`` or ``3-5`` names."""
    from ppsolve.models.documents.errors import InputError

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
    from ppsolve.models.documents.errors import InputError
    from ppsolve.models.documents.files import read_json, source_name
    from ppsolve.models.instances import parse_instance

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
    from ppsolve.models.documents.errors import InputError
    from ppsolve.solver.render.figures import figures

    first, last = drawing.window
    if last is not None and last <= first:
        least, got = figures(first, last)
        raise InputError(f"expected more than --from ({least}), got {got}", field="--to")
    if heuristic is not None and given.instance is None:
        raise InputError("a heuristic needs an instance, not a result", field="--heuristic")
    if heuristic is not None and given.data is not None:
        raise InputError("expected either a result or a heuristic", field="--heuristic")


def _print_order(given: _Given, heuristic: str | None, drawing: _Drawing) -> None:
    """Print the program order of a result, or the one that a heuristic makes."""
    from ppsolve.models.documents.errors import InputError

    instance = given.instance
    if instance is not None:
        expect_program(instance, given.instance_source, "--order")
    if instance is None or given.data is not None:
        print_order(_owner(given.data, given.source), given.source)
        return
    if heuristic is None:
        raise InputError("expected a RESULT or --heuristic NAME beside it", field="--order")
    with about_file(instance, given.instance_source):
        entry = simulate_entry(instance, heuristic, group_size=None, round_up=drawing.round_up)
    refuse_not_applicable(entry)
    print_order(entry, f"{given.instance_source}, {heuristic}")


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
    from ppsolve.models.core.documents import parse_given
    from ppsolve.models.documents.errors import InputError
    from ppsolve.models.overlap.instance import OverlapInstance
    from ppsolve.solver.kfac.pattern import is_refresh
    from ppsolve.solver.render.views import view_of_schedule

    data = given.data
    problem = _problem(instance, data, drawing)
    # What a result says of a refresh are iterations, which the times of a schedule do not have.
    document = {"schedule": data.get("schedule", data)} if is_refresh(instance) else data
    schedule, violations = parse_given(document, problem, given.source)
    if schedule is None:
        raise InputError(f"not a whole schedule: {violations[0]}", source=given.source)
    if violations:
        say(f"warning: {given.source}: {violations[0]} (ppsolve check lists everything)")
    title = _title(instance.name, data.get("best_by") or data.get("name"))
    claimed = None
    if is_refresh(instance) or isinstance(instance, OverlapInstance):
        claimed = _owner(data, given.source)
    _warn_of_order(instance, schedule, claimed, given.source)
    return view_of_schedule(title, instance, schedule, claimed, **drawing.keywords())


def _warn_of_order(
    instance: Instance, schedule: Schedule, claimed: Result | HeuristicEntry | None, source: str
) -> None:
    """Say so where the program order of a result does not run as its schedule."""
    from ppsolve.models.overlap.instance import OverlapInstance
    from ppsolve.models.overlap.result import OverlapEntry, OverlapResult
    from ppsolve.solver.render.overlap.view import program_of

    if not isinstance(instance, OverlapInstance):
        return
    if not isinstance(claimed, OverlapResult | OverlapEntry):
        return
    if claimed.order is not None and program_of(instance, schedule, claimed.order) is None:
        say(f"warning: {source}: its order does not run as its schedule; the schedule is drawn")


def _problem(instance: Instance, data: Any, drawing: _Drawing) -> Problem:
    """Lower an instance; one with a pinned pipeline for the iterations that are in `data`."""
    from ppsolve.solver.kfac.pattern import is_refresh, pattern_of
    from ppsolve.solver.optimize.lowering import lower_instance

    if not is_refresh(instance):
        return lower_instance(instance, round_up=drawing.round_up)
    from ppsolve.solver.kfac.claims import iterations_in

    counts = iterations_in(data, pattern_of(instance, round_up=drawing.round_up))
    return lower_instance(instance, round_up=drawing.round_up, iterations=counts)


def _of_entry(instance: Instance, entry: HeuristicEntry, drawing: _Drawing) -> RenderableType:
    from ppsolve.models.core.documents import parse_given
    from ppsolve.models.documents.errors import InputError
    from ppsolve.solver.render.views import view_of_schedule

    refuse_not_applicable(entry)
    if entry.schedule is None:
        why = plain_reason(entry.reason or "")
        raise InputError(f"{entry.name} gives no schedule: {why}", source=instance.name)
    document = entry.schedule.model_dump()
    schedule = parse_given(document, _problem(instance, document, drawing))[0]
    if schedule is None:
        raise InputError(f"{entry.name} gives no schedule: {entry.reason}", source=instance.name)
    if entry.reason:
        say(f"warning: {entry.status.value}: {_why(entry)}")
    title = _title(instance.name, entry.name)
    return view_of_schedule(title, instance, schedule, entry, **drawing.keywords())


def _why(entry: HeuristicEntry) -> str:
    from ppsolve.models.kfac.result import RefreshEntry, broken_rules

    if isinstance(entry, RefreshEntry) and entry.breaks:
        return f"breaks rules: {broken_rules(entry.breaks)}"
    return entry.reason or ""


def _of_result(given: _Given, drawing: _Drawing) -> RenderableType:
    from pydantic import ValidationError

    from ppsolve.models.core.result import ScheduleDocument
    from ppsolve.models.documents.base import explain
    from ppsolve.models.documents.errors import InputError
    from ppsolve.solver.render.views import view_of_document

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
    try:
        return view_of_document(title, document, source, **drawing.keywords())
    except InputError as error:
        raise error.located(given.source) from None


def _owner(data: dict[str, Any], source: str) -> Result | HeuristicEntry | None:
    """Return the result or heuristic entry that `data` is, None for a bare schedule."""
    from pydantic import ValidationError

    from ppsolve.models.documents.base import explain

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
    """Return what a result and a heuristic entry are that have the fields of `data`."""
    from ppsolve.models.core.result import HeuristicEntry, Result
    from ppsolve.models.kfac.result import RefreshEntry, RefreshResult
    from ppsolve.models.overlap.result import OverlapEntry, OverlapResult

    if "iterations_of" in data:
        return RefreshResult, RefreshEntry
    if "exposed_wait" in data:
        return OverlapResult, OverlapEntry
    return Result, HeuristicEntry


def _refuse_huge_numbers(data: Any, source: str) -> None:
    """Refuse numbers that would take the validation of whole numbers forever, or crash it."""
    from decimal import Decimal

    from ppsolve.models.documents.base import as_finite, field_path
    from ppsolve.models.documents.errors import InputError

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
    from ppsolve.solver.kfac.pattern import is_refresh, pattern_of
    from ppsolve.solver.optimize.lowering import lower_instance
    from ppsolve.solver.render.instance_view import describe_problem
    from ppsolve.solver.render.kfac.description import describe_refresh

    if is_refresh(instance):
        return describe_refresh(instance, pattern_of(instance, round_up=round_up))
    return describe_problem(instance, lower_instance(instance, round_up=round_up))
