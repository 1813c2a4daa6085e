"""Reports on the terminal: one result, or one heuristic, of any kind."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.instances import Instance
from ppsolve.solver.render.drawings import drawing_of
from ppsolve.solver.render.figures import figure, figures, percent, seconds
from ppsolve.solver.render.tables import facts
from ppsolve.solver.render.wording import (
    ENTRY_STYLE,
    STATUS_STYLE,
    separated,
    unit_of,
    with_unit,
)

_RANK = list(ENTRY_STYLE)


def summary_line(result: Result) -> Text:
    """Return the outcome in one line, for `--quiet`."""
    line = Text(f"{result.instance}: ", overflow="fold")
    line.append(result.status.value, STATUS_STYLE[result.status])
    value, bound = figures(result.value, result.bound)
    if result.value is not None:
        line.append(f" {with_unit(value, unit_of(result))}")
    if result.bound is not None:
        line.append(f", bound {bound}, gap {percent(result.gap)}")
    line.append(drawing_of(result.kind).summary(result))
    if result.reason:
        line.append(f" ({separated(result.reason, result.time_unit)})")
    line.append(f", {seconds(result.wall_seconds)}")
    return line


def report(
    result: Result, *, verbose: bool = False, instance: Instance | None = None
) -> RenderableType:
    """Return a result: the best schedule, the bound, and every heuristic beside them.

    Parameters
    ----------
    result : Result
        The result.
    verbose : bool
        Say everything.
    instance : Instance, optional
        Gives caps that the result does not repeat.
    """
    drawing = drawing_of(result.kind)
    title = Text(f"{result.instance}: ")
    title.append(result.status.value, STATUS_STYLE[result.status])
    if result.value is not None and unit_of(result) != result.time_unit:
        title.append(f", {with_unit(figure(result.value), unit_of(result))}")
    rows = [*drawing.facts(result, instance), *_ending(result, verbose=verbose)]
    parts: list[RenderableType] = [title, facts(rows)]
    for part in drawing.parts(result):
        parts += [Text(), part]
    if result.heuristics:
        entries = sorted(result.heuristics, key=_order)
        parts += [Text(), *drawing.heuristics(entries, result, verbose=verbose)]
    return Group(*parts, *drawing.notes(result, verbose=verbose))


def _ending(result: Result, *, verbose: bool) -> Iterator[tuple[str, str]]:
    if result.reason:
        yield "reason", separated(result.reason, result.time_unit)
    if result.rounding_error:
        yield "rounding", f"times rounded up by at most {percent(result.rounding_error)}"
    why = result.stop_reason.value.replace("_", " ")
    yield "stopped", f"{why} after {seconds(result.wall_seconds)}"
    if verbose:
        for bound in result.bounds:
            yield f"bound {bound.name}", with_unit(figure(bound.value), unit_of(result))
        yield "seed", f"{result.seed}, workers {result.workers or 'all'}"
        yield "versions", ", ".join(f"{k} {v}" for k, v in result.versions if v)


def _order(entry: HeuristicEntry) -> tuple[int, float]:
    return _RANK.index(entry.status), entry.value if entry.value is not None else 0.0


def entry_line(entry: HeuristicEntry, unit: str) -> Text:
    """Return what a heuristic reached in one line, for `--quiet`; times are in `unit`."""
    line = Text(f"{entry.name}: ", overflow="fold")
    line.append(entry.status.value, ENTRY_STYLE[entry.status])
    if entry.value is not None:
        line.append(f" {with_unit(figure(entry.value), entry.value_unit or unit)}")
    if entry.reason:
        line.append(f" ({separated(drawing_of(entry.kind).reason(entry), unit)})")
    return line


def entry_report(instance: Instance, entry: HeuristicEntry) -> RenderableType:
    """Return what one heuristic reaches on an instance."""
    drawing, unit = drawing_of(instance.kind), instance.time_unit
    title = Text(f"{entry.name} on {instance.name}: ")
    title.append(entry.status.value, ENTRY_STYLE[entry.status] or "bold green")
    if entry.value is not None and (entry.value_unit or unit) != unit:
        title.append(f", {with_unit(figure(entry.value), entry.value_unit or unit)}")
    parts: list[RenderableType] = [title, facts(drawing.entry_facts(entry, instance))]
    for part in drawing.entry_parts(entry, instance):
        parts += [Text(), part]
    return Group(*parts)
