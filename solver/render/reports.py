"""Reports on the terminal: one result, or one heuristic."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.problem import Objective
from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result
from ppsolve.models.instances import Instance
from ppsolve.models.kfac.result import RefreshEntry, RefreshResult
from ppsolve.models.overlap.instance import OverlapInstance
from ppsolve.models.overlap.result import OverlapEntry, OverlapResult
from ppsolve.solver.render.figures import ABSENT, figure, figures, percent, ratio, seconds
from ppsolve.solver.render.kfac.report import (
    broken_claims,
    device_table,
    refresh_entry_facts,
    refresh_facts,
    refresh_heuristics,
)
from ppsolve.solver.render.overlap.report import (
    exposed_text,
    most_exposed,
    overlap_entry_facts,
    overlap_heuristics,
    plain_failure,
    program_facts,
)
from ppsolve.solver.render.tables import Column, FittingTable, facts, indented
from ppsolve.solver.render.wording import (
    ENTRY_STYLE,
    ITERATIONS,
    OBJECTIVE_WORDS,
    STATUS_STYLE,
    entry_status,
    separated,
    value_unit,
    with_unit,
)

_RANK = list(ENTRY_STYLE)


def summary_line(result: Result) -> Text:
    """Return the outcome in one line, for `--quiet`."""
    line = Text(f"{result.instance}: ", overflow="fold")
    line.append(result.status.value, STATUS_STYLE[result.status])
    value, bound = figures(result.value, result.bound)
    if result.value is not None:
        line.append(f" {with_unit(value, value_unit(result.objective, result.time_unit))}")
    if result.bound is not None:
        line.append(f", bound {bound}, gap {percent(result.gap)}")
    if isinstance(result, OverlapResult) and result.exposed_wait is not None:
        line.append(f", exposed {exposed_text(result, result.makespan, result.time_unit)}")
    if result.reason:
        line.append(f" ({separated(result.reason, result.time_unit)})")
    line.append(f", {seconds(result.wall_seconds)}")
    return line


def report(
    result: Result, *, verbose: bool = False, instance: Instance | None = None
) -> RenderableType:
    """Return a result: the best schedule, the bound, and every heuristic beside them.

    The instance, where it is known, gives caps that the result does not repeat.
    """
    title = Text(f"{result.instance}: ")
    title.append(result.status.value, STATUS_STYLE[result.status])
    if isinstance(result, RefreshResult):
        return Group(title, *_refresh(result, title, verbose=verbose))
    if isinstance(result, OverlapResult):
        return Group(title, *_overlap(result, instance, verbose=verbose))
    parts: list[RenderableType] = [title, facts(_facts(result, verbose=verbose))]
    if result.heuristics:
        parts += [Text(), *_heuristics(result, verbose=verbose)]
    return Group(*parts)


def _refresh(result: RefreshResult, title: Text, *, verbose: bool) -> Iterator[RenderableType]:
    if result.value is not None:
        title.append(f", {with_unit(figure(result.value), ITERATIONS)}")
    yield facts([*refresh_facts(result), *_ending(result, verbose=verbose)])
    if result.iterations_of or result.bound_of:
        yield Text()
        yield indented(device_table(result, result.time_unit))
    if result.heuristics:
        yield Text()
        yield refresh_heuristics(_ordered(result), result, verbose=verbose)
    yield from broken_claims(result)


def _overlap(
    result: OverlapResult, instance: Instance | None, *, verbose: bool
) -> Iterator[RenderableType]:
    program = instance if isinstance(instance, OverlapInstance) else None
    yield facts(
        [
            *_value_facts(result),
            *program_facts(
                result, result.makespan, result.time_unit, program, result.least_peak_bytes
            ),
            *_ending(result, verbose=verbose),
        ]
    )
    if result.heuristics:
        entries = [
            entry
            for entry in _ordered(result)
            if verbose or entry.status is not HeuristicStatus.NOT_APPLICABLE
        ]
        yield Text()
        yield from overlap_heuristics(entries, result, verbose=verbose)
    if result.exposed:
        yield Text()
        yield from most_exposed(result, verbose=verbose)


def _value_facts(result: OverlapResult) -> Iterator[tuple[str, str]]:
    unit = result.time_unit
    value, lower = figures(result.value, result.bound)
    if result.value is not None:
        yield "makespan", f"{value} {unit}" + (f"  by {result.best_by}" if result.best_by else "")
    if result.bound is not None:
        yield (
            "lower bound",
            f"{lower} {unit}" + (f"  by {result.bound_by}" if result.bound_by else ""),
        )
    if result.gap is not None:
        yield "gap", percent(result.gap)


def _facts(result: Result, *, verbose: bool) -> Iterator[tuple[str, str]]:
    unit = result.time_unit
    is_span = result.objective is Objective.DEVICE_SPAN
    other = result.makespan if is_span else result.device_span
    value, second, lower = figures(result.value, other, result.bound)
    if result.value is not None:
        by = f"  by {result.best_by}" if result.best_by else ""
        yield OBJECTIVE_WORDS[result.objective], f"{value} {unit}{by}"
        yield "makespan" if is_span else "device span", f"{second} {unit}"
    if result.bound is not None:
        by = f"  by {result.bound_by}" if result.bound_by else ""
        yield "lower bound", f"{lower} {unit}{by}"
    if result.gap is not None:
        yield "gap", percent(result.gap)
    if result.bubble_ratio is not None:
        over = result.bubble_over_compute
        extra = f"  ({ratio(over)} of compute)" if over is not None else ""
        yield "bubble ratio", ratio(result.bubble_ratio) + extra
    yield from _ending(result, verbose=verbose)


def _ending(result: Result, *, verbose: bool) -> Iterator[tuple[str, str]]:
    if result.reason:
        yield "reason", separated(result.reason, result.time_unit)
    if result.rounding_error:
        yield "rounding", f"times rounded up by at most {percent(result.rounding_error)}"
    why = result.stop_reason.value.replace("_", " ")
    yield "stopped", f"{why} after {seconds(result.wall_seconds)}"
    if verbose:
        unit = value_unit(result.objective, result.time_unit)
        for bound in result.bounds:
            yield f"bound {bound.name}", with_unit(figure(bound.value), unit)
        yield "seed", f"{result.seed}, workers {result.workers or 'all'}"
        yield "versions", ", ".join(f"{k} {v}" for k, v in result.versions if v)


def _heuristics(result: Result, *, verbose: bool) -> Iterator[RenderableType]:
    entries = _ordered(result)
    shown = [e for e in entries if verbose or e.status is not HeuristicStatus.NOT_APPLICABLE]
    if shown:
        word = OBJECTIVE_WORDS[result.objective]
        table = FittingTable(
            Column("heuristic", is_text=True),
            Column(word),
            Column("gap"),
            Column("bubble", expendable=1),
            Column("status", is_text=True, wraps=verbose, is_cut=not verbose),
        )
        for entry, value in zip(shown, figures(*(e.value for e in shown)), strict=True):
            table.add_row(
                entry.name,
                value,
                percent(entry.gap),
                ratio(entry.bubble_ratio),
                entry_status(entry, result, verbose=verbose),
                style=ENTRY_STYLE[entry.status],
            )
        yield indented(table)
    hidden = [e.name for e in entries if e not in shown]
    if hidden:
        yield indented(Text(f"not applicable: {', '.join(hidden)} (--verbose says why)", "dim"))


def _ordered(result: Result) -> list[HeuristicEntry]:
    return sorted(result.heuristics, key=_order)


def _order(entry: HeuristicEntry) -> tuple[int, float]:
    return _RANK.index(entry.status), entry.value if entry.value is not None else 0.0


def entry_line(entry: HeuristicEntry, unit: str) -> Text:
    """Return what a heuristic reached in one line, for `--quiet`."""
    line = Text(f"{entry.name}: ", overflow="fold")
    line.append(entry.status.value, ENTRY_STYLE[entry.status])
    if entry.value is not None:
        counted = ITERATIONS if isinstance(entry, RefreshEntry) else unit
        line.append(f" {with_unit(figure(entry.value), counted)}")
    if entry.reason:
        line.append(f" ({separated(_plain(entry), unit)})")
    return line


def _plain(entry: HeuristicEntry) -> str:
    """Return the reason of an entry; that of a failed pass in plain words."""
    reason = entry.reason or ""
    return plain_failure(reason) if entry.status is HeuristicStatus.FAILED else reason


def entry_report(instance: Instance, entry: HeuristicEntry) -> RenderableType:
    """Return what one heuristic reaches on an instance."""
    title = Text(f"{entry.name} on {instance.name}: ")
    title.append(entry.status.value, ENTRY_STYLE[entry.status] or "bold green")
    if isinstance(entry, OverlapEntry) and isinstance(instance, OverlapInstance):
        unit = instance.time_unit
        why = [("reason", separated(_plain(entry), unit))] if entry.reason else []
        return Group(title, facts([*why, *overlap_entry_facts(entry, unit, instance)]))
    if not isinstance(entry, RefreshEntry):
        return Group(title, facts(_entry_facts(entry, instance.time_unit)))
    if entry.value is not None:
        title.append(f", {with_unit(figure(entry.value), ITERATIONS)}")
    parts: list[RenderableType] = [title, facts(refresh_entry_facts(entry, instance.time_unit))]
    if entry.iterations_of:
        parts += [Text(), indented(device_table(entry, instance.time_unit))]
    return Group(*parts)


def _entry_facts(entry: HeuristicEntry, unit: str) -> Iterator[tuple[str, str]]:
    if entry.reason:
        yield "reason", separated(entry.reason, unit)
    times = figures(entry.makespan, entry.device_span)
    for name, text in zip(("makespan", "device span"), times, strict=True):
        yield name, text if text == ABSENT else f"{text} {unit}"
    yield "bubble ratio", ratio(entry.bubble_ratio)
    peaks = entry.peak_memory or {}
    for pool, peak in zip(peaks, figures(*peaks.values()), strict=True):
        yield f"peak, {pool}", peak
