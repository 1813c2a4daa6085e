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
from ppsolve.solver.render.drawing import heuristic_table, reached
from ppsolve.solver.render.figures import ABSENT, figure, figures, percent, ratio
from ppsolve.solver.render.tables import Column, each, facts, indented, table
from ppsolve.solver.render.wording import ITERATIONS, entry_status, separated, with_unit

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
    yield from reached(result)
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


def device_table(known: RefreshFigures, unit: str) -> RenderableType:
    """Return the table of devices of a result or a heuristic.

    Parameters
    ----------
    known : RefreshFigures
        What is known per device; what is not known gets no column.
    unit : str
        Unit of times.
    """
    proved = known if isinstance(known, RefreshResult) else None
    bounds = proved and proved.bound_of
    devices = range(len(known.iterations_of or bounds or ()))
    proofs = (proved and proved.bounds_by) or [""] * len(devices)
    breaks = known.breaks_of if isinstance(known, RefreshEntry) else None
    found = table(
        (Column("device"), each(devices, str)),
        (Column(ITERATIONS), each(known.iterations_of, figure)),
        (
            Column("bound by", is_text=True),
            None if bounds is None else list(map("{} {}".format, bounds, proofs)),
        ),
        (Column("usage"), each(known.usage_of, "{:.2f} %".format)),
        (Column(f"bubbles\nleft ({unit})", expendable=1), each(known.bubbles_of, figure)),
        (Column("peak\nsaved", expendable=3), each(known.peak_saved_of, figure)),
        (Column("oldest\ninverse", expendable=2), each(known.oldest_of, _age)),
        (
            Column("breaks", is_text=True, wraps=True),
            each(breaks, lambda rules: broken_rules(rules) or ABSENT),
        ),
    )
    return indented(found)


def _age(age: int | None) -> str:
    return ABSENT if age is None else f"{figure(age)} it."


def refresh_heuristics(
    entries: Sequence[HeuristicEntry], result: RefreshResult, *, verbose: bool
) -> RenderableType:
    """Return the table of heuristics; the rules that they break are given below it.

    Parameters
    ----------
    entries : sequence of HeuristicEntry
        One row each.
    result : RefreshResult
        What they are compared with.
    verbose : bool
        Say all that is wrong in the table.
    """
    counts = [e.iterations_of if isinstance(e, RefreshEntry) else None for e in entries]
    return heuristic_table(
        entries,
        result,
        (Column("per device", is_text=True, expendable=1), each(counts, per_device)),
        (Column("gap", expendable=2), [percent(entry.gap) for entry in entries]),
        (
            Column("status", is_text=True, wraps=True),
            [_status(entry, result, verbose=verbose) for entry in entries],
        ),
    )


def _status(entry: HeuristicEntry, result: RefreshResult, *, verbose: bool) -> str:
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
    found = [{entry.name: _marked(entry, r) for entry in r.heuristics} for r in results]
    yield table(
        (
            Column("iterations\nper device", is_text=True, wraps=fold_names),
            [result.instance for result in results],
        ),
        *(
            (
                Column(
                    name.replace("-", "-\n", 1),
                    is_text=True,
                    expendable=2 * (name not in PUBLISHED),
                ),
                [by_name.get(name, ABSENT) for by_name in found],
            )
            for name in names
        ),
        (Column("best", is_text=True), [per_device(result.iterations_of) for result in results]),
        (
            Column("bound", is_text=True, expendable=1),
            [per_device(result.bound_of) for result in results],
        ),
    )
    if any(mark in text for by_name in found for text in by_name.values() for mark in MARKS):
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
