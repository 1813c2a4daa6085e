"""A refresh of K-FAC work in figures: iterations, devices, heuristics and what they break."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Status
from ppsolve.models.kfac.instance import TieBreak
from ppsolve.models.kfac.result import (
    RefreshEntry,
    RefreshFigures,
    RefreshResult,
    TieBreakEntry,
    broken_rules,
)
from ppsolve.solver.render.figures import ABSENT, figure, figures, percent, ratio
from ppsolve.solver.render.tables import Column, FittingTable, facts, indented
from ppsolve.solver.render.wording import (
    ENTRY_STYLE,
    ITERATIONS,
    entry_status,
    separated,
    with_unit,
)

BREAKS, IMPOSSIBLE = "*", "!"
PUBLISHED = ("pipefisher", "pipefisher-causal")
"""Heuristics that stay beside the best schedule where space is short."""

MARKS = (BREAKS, IMPOSSIBLE)
"""Marks of iterations that a heuristic claims but breaks rules for."""

MOST_LISTED = 16
"""Devices whose iterations are listed one by one; more are counted."""

_TIE_BREAKS = {
    TieBreak.STALENESS: "total completion time of inversions",
    TieBreak.USAGE: "total completion time of all K-FAC work",
    TieBreak.NONE: "nothing",
}


def refresh_facts(result: RefreshResult) -> Iterator[tuple[str, str]]:
    """Yield names and values of what holds for all devices of a result."""
    if result.value is not None:
        by = f"  by {result.best_by}" if result.best_by else ""
        yield "iterations", f"{figure(result.value)}{by}"
    if result.bound is not None:
        by = f"  by {result.bound_by}" if result.bound_by else ""
        yield "lower bound", f"{with_unit(figure(result.bound), ITERATIONS)}{by}"
    if result.gap is not None:
        yield "gap", percent(result.gap)
    if result.bubble_ratio is not None:
        yield "bubble ratio", ratio(result.bubble_ratio)
    if result.tie_break is not None:
        yield _tie_break(result.tie_break, result.time_unit)


def _tie_break(tie: TieBreakEntry, unit: str) -> tuple[str, str]:
    value, bound = figures(tie.value, tie.bound)
    proof = "proven least" if value == bound else f"at least {bound} {unit}"
    return tie.name.value, f"{value} {unit}, {proof} ({_TIE_BREAKS[tie.name]})"


def refresh_entry_facts(entry: RefreshEntry, unit: str) -> Iterator[tuple[str, str]]:
    """Yield names and values of what holds for all devices of a heuristic."""
    if entry.breaks:
        yield "breaks", broken_rules(entry.breaks)
        yield "first", separated((entry.reason or "").rpartition("; first ")[2], unit)
    elif entry.reason:
        yield "reason", separated(entry.reason, unit)
    if entry.makespan is not None:
        yield "ends after", f"{figure(entry.makespan)} {unit}"
        yield "bubble ratio", ratio(entry.bubble_ratio)


def device_table(found: RefreshFigures, unit: str) -> FittingTable:
    """Return the table of devices of a result or a heuristic."""
    columns = _device_columns(found, unit)
    table = FittingTable(*(column for column, _ in columns))
    for row in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*row)
    return table


def _device_columns(found: RefreshFigures, unit: str) -> list[tuple[Column, list[str]]]:
    bounds = found.bound_of if isinstance(found, RefreshResult) else None
    number = len(found.iterations_of or bounds or ())
    columns = [(Column("device"), [str(device) for device in range(number)])]
    if found.iterations_of is not None:
        columns.append((Column(ITERATIONS), [figure(count) for count in found.iterations_of]))
    if isinstance(found, RefreshResult) and bounds is not None:
        proofs = found.bounds_by or [""] * number
        proved = [f"{b} {by}" for b, by in zip(bounds, proofs, strict=True)]
        columns.append((Column("bound by", is_text=True), proved))
    if found.usage_of is not None:
        columns.append((Column("usage"), [f"{usage:.2f} %" for usage in found.usage_of]))
    if found.bubbles_of is not None:
        left = Column(f"bubbles\nleft ({unit})", expendable=1)
        columns.append((left, [figure(time) for time in found.bubbles_of]))
    if found.peak_saved_of is not None:
        peak = Column("peak\nsaved", expendable=3)
        columns.append((peak, [figure(amount) for amount in found.peak_saved_of]))
    if found.oldest_of is not None:
        oldest = Column("oldest\ninverse", expendable=2)
        columns.append((oldest, [_age(age) for age in found.oldest_of]))
    breaks = found.breaks_of if isinstance(found, RefreshEntry) else None
    if breaks is not None:
        words = [broken_rules(rules) or ABSENT for rules in breaks]
        columns.append((Column("breaks", is_text=True, wraps=True), words))
    return columns


def _age(age: int | None) -> str:
    return ABSENT if age is None else f"{figure(age)} it."


def refresh_heuristics(
    entries: Sequence[HeuristicEntry], result: RefreshResult, *, verbose: bool
) -> RenderableType:
    """Return the table of heuristics."""
    table = FittingTable(
        Column("heuristic", is_text=True),
        Column(ITERATIONS),
        Column("per device", is_text=True, expendable=1),
        Column("gap", expendable=2),
        Column("status", is_text=True, wraps=True),
    )
    for entry in entries:
        counts = entry.iterations_of if isinstance(entry, RefreshEntry) else None
        table.add_row(
            entry.name,
            figure(entry.value),
            per_device(counts),
            percent(entry.gap),
            _status(entry, result, verbose=verbose),
            style=ENTRY_STYLE[entry.status],
        )
    return indented(table)


def _status(entry: HeuristicEntry, result: RefreshResult, *, verbose: bool) -> str:
    """Return what became of a heuristic; the rules that it breaks are given below the table."""
    if not verbose and isinstance(entry, RefreshEntry) and entry.breaks:
        return entry.status.value.replace("_", " ")
    return entry_status(entry, result, verbose=verbose)


def per_device(counts: Sequence[int] | None, marks: Sequence[str] = ()) -> str:
    """Return the iterations of each device: ``9 8 8 9``, ``all 2``, or the range of many."""
    if not counts:
        return ABSENT
    texts = [str(count) for count in counts]
    for device, mark in enumerate(marks):
        texts[device] += mark
    if len(texts) > 2 and len(set(texts)) == 1:
        return f"all {texts[0]}"
    if len(counts) > MOST_LISTED:
        return f"{min(counts)} to {max(counts)}"
    return " ".join(texts)


def impossible_devices(entry: RefreshEntry, result: RefreshResult) -> list[int]:
    """Return the devices on which a heuristic needs rules broken to beat the proven bound."""
    if entry.status is not HeuristicStatus.INFEASIBLE or not result.bound_of:
        return []
    counts, breaks = entry.iterations_of or [], entry.breaks_of or []
    unaligned = bool((entry.breaks or {}).get("sync_not_aligned"))
    pairs = zip(counts, result.bound_of, strict=False)
    return [
        device
        for device, (count, bound) in enumerate(pairs)
        if count < bound and (unaligned or (device < len(breaks) and breaks[device]))
    ]


def broken_claims(result: RefreshResult) -> Iterator[RenderableType]:
    """Yield the rules that heuristics break, and what they claim that is proved impossible."""
    for entry in result.heuristics:
        if not (isinstance(entry, RefreshEntry) and entry.breaks):
            continue
        yield Text()
        yield Text(f"{entry.name} breaks rules: {broken_rules(entry.breaks)}", "yellow")
        devices = impossible_devices(entry, result)
        if result.status is Status.INFEASIBLE:
            claimed = with_unit(figure(entry.value), ITERATIONS)
            yield Text(f"  {claimed} claimed, impossible: there is no valid schedule", "bold red")
        if devices:
            yield Text("  and claims fewer iterations than any valid schedule has:", "bold red")
            rows = ((f"  device {device}", _claim(entry, result, device)) for device in devices)
            yield facts(rows)


def _claim(entry: RefreshEntry, result: RefreshResult, device: int) -> str:
    counts, bounds, by = entry.iterations_of or [], result.bound_of or [], result.bounds_by or []
    breaks = (entry.breaks_of or [])[device] or {
        rule: count for rule, count in (entry.breaks or {}).items() if rule == "sync_not_aligned"
    }
    claimed = with_unit(str(counts[device]), ITERATIONS)
    proof = f" (proved by {by[device]})" if device < len(by) else ""
    return (
        f"{claimed} claimed, impossible: {broken_rules(breaks)}; "
        f"at least {with_unit(str(bounds[device]), ITERATIONS)}{proof}"
    )


def refresh_comparison(
    results: Sequence[RefreshResult], *, fold_names: bool
) -> Iterator[RenderableType]:
    """Yield the iterations of each device by heuristic, at best, and at least."""
    names = dict.fromkeys(entry.name for result in results for entry in result.heuristics)
    table = FittingTable(
        Column("iterations\nper device", is_text=True, wraps=fold_names),
        *(
            Column(
                name.replace("-", "-\n", 1), is_text=True, expendable=2 * (name not in PUBLISHED)
            )
            for name in names
        ),
        Column("best", is_text=True),
        Column("bound", is_text=True, expendable=1),
    )
    marked = False
    for result in results:
        by_name = {entry.name: _marked(entry, result) for entry in result.heuristics}
        marked = marked or any(mark in text for text in by_name.values() for mark in MARKS)
        table.add_row(
            result.instance,
            *(by_name.get(name, ABSENT) for name in names),
            per_device(result.iterations_of),
            per_device(result.bound_of),
        )
    yield table
    if marked:
        yield Text(f"{BREAKS} breaks rules there, {IMPOSSIBLE} fewer than the proven bound", "dim")


def _marked(entry: HeuristicEntry, result: RefreshResult) -> str:
    if not isinstance(entry, RefreshEntry):
        return ABSENT
    impossible = impossible_devices(entry, result)
    marks = [
        (IMPOSSIBLE if device in impossible else BREAKS) if rules else ""
        for device, rules in enumerate(entry.breaks_of or [])
    ]
    return per_device(entry.iterations_of, marks)
