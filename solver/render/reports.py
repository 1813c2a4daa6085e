"""Reports on the terminal: one result, or one heuristic, of any kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.documents.printable import printable
from ppsolve.models.instances import Instance
from ppsolve.solver.render.drawings import drawing_of
from ppsolve.solver.render.figures import at_most, figure, figures, percent, seconds
from ppsolve.solver.render.tables import facts
from ppsolve.solver.render.wording import (
    ENTRY_STYLE,
    STATUS_STYLE,
    rounding_note,
    separated,
    spaced,
    unit_of,
    with_unit,
)

_RANK = list(ENTRY_STYLE)


def summary_line(result: Result) -> Text:
    """Return the outcome in one line, for `--quiet`."""
    line = _headed(result.instance, result.status, STATUS_STYLE[result.status])
    value, bound = figures(result.value, result.bound)
    if result.value is not None:
        line.append(f" {with_unit(value, unit_of(result))}")
    if result.bound is not None:
        line.append(f", bound {bound}, gap {percent(result.gap)}")
    line.append(drawing_of(result.kind).summary(result))
    if result.tick_error:
        unit = result.time_unit
        line.append(f", on ticks (given times: at most {at_most(result.tick_error)} {unit} lower)")
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

    Returns
    -------
    RenderableType
        Title, facts, tables and notes.
    """
    drawing = drawing_of(result.kind)
    title = _headed(result.instance, result.status, STATUS_STYLE[result.status])
    _append_count(title, result.value, unit_of(result), result.time_unit)
    known = [*drawing.facts(result, instance), *bottleneck(result)]
    rows = [*known, *ending(result, verbose=verbose)]
    parts = [title, facts(rows), *_apart(drawing.parts(result, result.time_unit))]
    if result.heuristics:
        entries = ranked(result.heuristics)
        parts += [Text(), *drawing.heuristics(entries, result, verbose=verbose)]
    return Group(*parts, *drawing.notes(result, verbose=verbose))


def bottleneck(result: Result) -> Iterator[tuple[str, str]]:
    """Yield what keeps the schedule from being shorter, in one sentence."""
    found = result.bottleneck
    if found is None:
        return
    value, less = figures(found.value, found.without_memory)
    proof = f"{found.rule}: {value} {result.time_unit}"
    if found.raised_by is not None:
        proof += f", more by {found.raised_by}"
    if found.without_memory is not None:
        proof += f"; {less} {result.time_unit} with any memory"
    yield "bottleneck", f"{found.why} ({proof}); it falls with {found.lowered_by}"


def ending(result: Result, *, verbose: bool) -> Iterator[tuple[str, str]]:
    """Yield why and when a run ended.

    Parameters
    ----------
    result : Result
        The result.
    verbose : bool
        Also yield every bound, the seed and the versions.

    Yields
    ------
    (str, str)
        Name and value of a fact.
    """
    if result.reason:
        yield "reason", separated(result.reason, result.time_unit)
    note = rounding_note(result.tick_error, result.time_unit)
    if note:
        yield "rounding", note
    why = spaced(result.stop_reason)
    yield "stopped", f"{why} after {seconds(result.wall_seconds)}"
    if verbose:
        for bound in result.bounds:
            yield f"bound {bound.name}", with_unit(figure(bound.value), unit_of(result))
        yield "seed", f"{result.seed}, workers {result.workers or 'all'}"
        yield "versions", ", ".join(f"{k} {v}" for k, v in result.versions if v)


def ranked(entries: Iterable[HeuristicEntry]) -> list[HeuristicEntry]:
    """Return entries in the order of reports: valid ones first, the best of them first."""
    return sorted(entries, key=lambda e: (_RANK.index(e.status), e.value or 0.0))


def entry_line(entry: HeuristicEntry, unit: str) -> Text:
    """Return the outcome of a heuristic in one line, for `--quiet`.

    Parameters
    ----------
    entry : HeuristicEntry
        What the heuristic reached.
    unit : str
        Unit of its times.

    Returns
    -------
    Text
        Its name, status, value, pattern and reason.
    """
    line = _headed(entry.name, entry.status, ENTRY_STYLE[entry.status])
    if entry.value is not None:
        line.append(f" {with_unit(figure(entry.value), entry.value_unit or unit)}")
    if entry.pattern:
        line.append(f" under {entry.pattern}")
    if entry.reason:
        line.append(f" ({separated(drawing_of(entry.kind).reason(entry), unit)})")
    return line


def entry_report(instance: Instance, entry: HeuristicEntry) -> RenderableType:
    """Return the outcome of one heuristic on an instance.

    Parameters
    ----------
    instance : Instance
        The instance.
    entry : HeuristicEntry
        What the heuristic reached.

    Returns
    -------
    RenderableType
        Title, facts and tables.
    """
    drawing, unit = drawing_of(instance.kind), instance.time_unit
    style = ENTRY_STYLE[entry.status] or "bold green"
    title = _headed(f"{entry.name} on {instance.name}", entry.status, style)
    _append_count(title, entry.value, entry.value_unit or unit, unit)
    note = rounding_note(entry.tick_error, unit)
    rows = [*drawing.entry_facts(entry, instance), *([("rounding", note)] if note else [])]
    return Group(title, facts(rows), *_apart(drawing.parts(entry, unit)))


def _headed(name: str, status: str, style: str) -> Text:
    return Text.assemble(f"{printable(name)}: ", (status, style), overflow="fold")


def _append_count(title: Text, value: float | None, unit: str, time_unit: str) -> None:
    """Append a value that is no time, such as a number of iterations."""
    if value is not None and unit != time_unit:
        title.append(f", {with_unit(figure(value), unit)}")


def _apart(parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    for part in parts:
        yield from (Text(), part)
