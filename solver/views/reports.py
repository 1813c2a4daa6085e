"""Tables over many results: every instance, then every heuristic over all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from statistics import fmean

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.result import (
    BoundEntry,
    HeuristicEntry,
    HeuristicStatus,
    Result,
    Status,
)
from ppsolve.models.documents.printable import printable
from ppsolve.models.instances import Instance
from ppsolve.solver.views import tables, wording
from ppsolve.solver.views.drawings import drawing_of
from ppsolve.solver.views.figures import (
    ABSENT,
    at_most,
    figure,
    figures,
    percent,
    seconds,
)
from ppsolve.solver.views.tables import FactList, Field, FittingTable, TableColumn
from ppsolve.solver.views.time_units import in_readable_unit

_RANK = list(wording.ENTRY_STYLE)


def summary_line(result: Result) -> Text:
    """Return the outcome in one line, for `--quiet`."""
    error, unit = result.tick_error, result.time_unit
    result, _ = in_readable_unit(result, unit)
    line = _headed(result.instance, result.status, wording.STATUS_STYLE[result.status])
    value, bound = figures(result.value, result.bound)
    if result.value is not None:
        line.append(f" {wording.with_unit(value, wording.unit_of(result))}")
    if result.bound is not None:
        line.append(f", bound {bound}, gap {percent(result.gap)}")
    line.append(drawing_of(result.kind).summary(result))
    if error:
        line.append(f", on ticks (given times: at most {at_most(error)} {unit} lower)")
    if result.reason:
        line.append(f" ({result.reason})")
    line.append(f", {seconds(result.wall_seconds)}")
    return line


def report(
    result: Result, *, verbose: bool = False, instance: Instance | None = None
) -> Group:
    """Return a result: the best schedule, the bound, and every heuristic beside them.

    The instance gives caps that the result does not repeat.
    """
    result, _ = in_readable_unit(result, result.time_unit)
    drawing = drawing_of(result.kind)
    title = _headed(result.instance, result.status, wording.STATUS_STYLE[result.status])
    _append_count(title, result.value, wording.unit_of(result), result.time_unit)
    rows = [*drawing.facts(result, instance), *bottleneck(result)]
    rows += ending(result, verbose=verbose, instance=instance)
    content = [title, FactList(rows), *_apart(drawing.parts(result, result.time_unit))]
    if result.heuristics:
        entries = ranked(result.heuristics)
        content += [Text(), *drawing.heuristics(entries, result, verbose=verbose)]
    proof = _apart(_proof(result)) if verbose else ()
    return Group(*content, *drawing.notes(result, verbose=verbose), *proof)


def bottleneck(result: Result) -> Iterator[tuple[str, str]]:
    """Yield what keeps the schedule from being shorter, in one sentence."""
    cause = result.bottleneck
    if cause is None:
        return
    value, less = figures(cause.value, cause.without_memory)
    proof = f"{cause.rule}: {value} {result.time_unit}"
    if cause.raised_by is not None:
        proof += f", more by {cause.raised_by}"
    if cause.without_memory is not None:
        proof += f"; {less} {result.time_unit} with any memory"
    yield "bottleneck", f"{cause.why} ({proof}); it falls with {cause.lowered_by}"


def own_bounds(result: Result) -> Iterator[tuple[str, str]]:
    """Yield what became of each bound of the user."""
    for bound in result.own_bounds:
        words = [wording.spaced(bound.status.value)]
        if bound.value is not None:
            unit = wording.unit_of(result)
            words.insert(0, wording.with_unit(figure(bound.value), unit))
        if bound.reason is not None:
            words[-1] += f": {bound.reason}"
        elif bound.value is not None and result.bound is not None:
            proved = figure(result.bound)
            side = "above" if bound.value > result.bound else "not above"
            words.append(f"{side} the proved bound {proved}")
        yield "your bound", f"{bound.name}: {', '.join(words)}"


def ending(
    result: Result, *, verbose: bool, instance: Instance | None = None
) -> Iterator[tuple[str, str]]:
    """Yield why and when a run ended, if `verbose` also the seed and the versions.

    The instance names the time that made others round.
    """
    if result.reason:
        yield "reason", result.reason
    yield from own_bounds(result)
    note = wording.rounding_note(result.tick_error, result.time_unit, instance)
    if note:
        yield "rounding", note
    why = wording.spaced(result.stop_reason)
    yield "stopped", f"{why} after {drawing_of(result.kind).took(result)}"
    if verbose:
        yield "seed", f"{result.seed}, workers {result.workers or 'all'}"
        yield "versions", ", ".join(f"{k} {v}" for k, v in result.versions if v)


def _proof(result: Result) -> Iterator[RenderableType]:
    """Yield tables of the bounds and of the steps of a run."""
    names, unit = ("value", "bound"), wording.unit_of(result)
    value, bound = (Field(f"{n} ({unit})", attrgetter(n), 0, figure) for n in names)
    took = Field("took", attrgetter("seconds"), 0, seconds)
    bounds = list(result.bounds)
    if result.bound is not None and result.bound_by not in {
        None,
        *(b.name for b in bounds),
    }:
        bounds.append(BoundEntry(name=str(result.bound_by), value=result.bound))
    listings = ("bound", bounds, [value]), ("step", result.steps, [took, value, bound])
    for noun, rows, fields in listings:
        if rows:
            fields = [Field(noun, attrgetter("name")), *fields]
            yield tables.indented(
                tables.table_of(rows, *fields, caption=f"{noun.title()}s")
            )


def ranked(entries: Iterable[HeuristicEntry]) -> list[HeuristicEntry]:
    """Return entries in the order of reports: valid ones first, the best of them first."""
    return sorted(entries, key=lambda e: (_RANK.index(e.status), e.value or 0.0))


def entry_line(entry: HeuristicEntry, unit: str) -> Text:
    """Return the outcome of a heuristic in one line, for `--quiet`."""
    entry, unit = in_readable_unit(entry, unit)
    line = _headed(entry.name, entry.status, wording.ENTRY_STYLE[entry.status])
    if entry.value is not None:
        line.append(
            f" {wording.with_unit(figure(entry.value), entry.value_unit or unit)}"
        )
    if entry.pattern:
        line.append(f" under {entry.pattern}")
    if entry.reason:
        line.append(f" ({drawing_of(entry.kind).reason(entry)})")
    return line


def entry_report(instance: Instance, entry: HeuristicEntry) -> RenderableType:
    """Return the outcome of one heuristic on an instance."""
    drawing = drawing_of(instance.kind)
    entry, unit = in_readable_unit(entry, instance.time_unit)
    style = wording.ENTRY_STYLE[entry.status] or "bold green"
    title = _headed(f"{entry.name} on {instance.name}", entry.status, style)
    _append_count(title, entry.value, entry.value_unit or unit, unit)
    note = wording.rounding_note(entry.tick_error, unit, instance)
    rows = [
        *drawing.entry_facts(entry, instance, unit),
        *([("rounding", note)] if note else []),
    ]
    return Group(title, FactList(rows), *_apart(drawing.parts(entry, unit)))


def _headed(name: str, status: str, style: str) -> Text:
    return Text.assemble(f"{printable(name)}: ", (status, style), overflow="fold")


def _append_count(title: Text, value: float | None, unit: str, time_unit: str) -> None:
    """Append a value that is no time, such as a number of iterations."""
    if value is not None and unit != time_unit:
        title.append(f", {wording.with_unit(figure(value), unit)}")


def _apart(renderables: Iterable[RenderableType]) -> Iterator[RenderableType]:
    for renderable in renderables:
        yield from (Text(), renderable)


Pair = tuple[
    Result, HeuristicEntry
]  # a heuristic's entry, and the result that it is in


def comparison(
    results: Sequence[Result], *, fold_names: bool = False
) -> RenderableType:
    """Return the table of instances, the table of heuristics and a line of totals."""
    proven = [result for result in results if result.status is Status.OPTIMAL]
    total = sum(result.wall_seconds for result in results)
    closed = sum(r.value == getattr(best_entry(r), "value", None) for r in proven)
    summary = (
        f"{len(results)} instances: {len(proven)} proven optimal, {closed} of them reached by a "
        f"heuristic; {seconds(total)}"
    )
    return Group(
        _instances(results, fold_names),
        Text(),
        _heuristics(results),
        Text(),
        Text(summary),
    )


def _instances(results: Sequence[Result], fold_names: bool) -> RenderableType:
    names_units = (
        len({result.time_unit for result in results if not _counts(result)}) > 1
    )
    best, bounds = [], []
    for result in results:
        value, bound = figures(result.value, result.bound)
        is_named = result.value is not None and (names_units or _counts(result))
        best.append(
            wording.with_unit(value, wording.unit_of(result)) if is_named else value
        )
        bounds.append(bound)
    fields: tuple[Field[Result], ...] = (
        Field("best heuristic", lambda r: getattr(best_entry(r), "name", ABSENT), 2),
        Field("over\nbest", lambda r: getattr(best_entry(r), "gap", None), 3, percent),
        Field("time", lambda r: r.wall_seconds, 4, seconds),
    )
    return FittingTable(
        TableColumn(
            "instance", [r.instance for r in results], is_text=True, wraps=fold_names
        ),
        TableColumn(
            "status", [r.status.value for r in results], is_text=True, expendable=1
        ),
        TableColumn("best", best),
        TableColumn("bound", bounds, expendable=5),
        TableColumn("gap", [percent(r.gap) for r in results]),
        *(field.column(results) for field in fields),
    )


def _counts(result: Result) -> bool:
    """Whether the value of a result is no time."""
    return wording.unit_of(result) != result.time_unit


def best_entry(result: Result) -> HeuristicEntry | None:
    """Return the feasible heuristic entry with the smallest value, the first one of equals."""
    feasible = (e for e in result.heuristics if e.status is HeuristicStatus.FEASIBLE)
    valued = (entry for entry in feasible if entry.value is not None)
    return min(valued, key=lambda entry: entry.value or 0, default=None)


OTHERS = (
    ("infeasible", HeuristicStatus.INFEASIBLE, 2),
    ("failed", HeuristicStatus.FAILED, 1),
    ("n.a.", HeuristicStatus.NOT_APPLICABLE, 4),
)


def _heuristics(results: Sequence[Result]) -> RenderableType:
    entries = [(result, entry) for result in results for entry in result.heuristics]
    tried = {
        e.name for _, e in entries if e.status is not HeuristicStatus.NOT_APPLICABLE
    }
    by_name: dict[str, list[Pair]] = {}
    for result, entry in entries:
        if entry.name in tried:
            by_name.setdefault(entry.name, []).append((result, entry))
    counts = [Counter(entry.status for _, entry in pairs) for pairs in by_name.values()]
    runs = (count.total() - count[HeuristicStatus.NOT_APPLICABLE] for count in counts)
    valid = (count[HeuristicStatus.FEASIBLE] for count in counts)
    feasible = [
        [(r, e) for r, e in pairs if e.status is HeuristicStatus.FEASIBLE]
        for pairs in by_name.values()
    ]
    gaps = [[e.gap for _, e in pairs if e.gap is not None] for pairs in feasible]
    worst = [percent(max(excess, default=None)) for excess in gaps]
    return FittingTable(
        TableColumn("heuristic", list(by_name), is_text=True),
        TableColumn(
            "feasible", list(map("{} of {}".format, valid, runs)), expendable=1
        ),
        *(
            TableColumn(
                head, [str(count[status]) for count in counts], expendable=priority
            )
            for head, status, priority in OTHERS
        ),
        TableColumn(
            "reaches best",
            [str(sum(r.value == e.value for r, e in p)) for p in feasible],
        ),
        TableColumn(
            "mean\nover best",
            [percent(fmean(excess) if excess else None) for excess in gaps],
        ),
        TableColumn("worst\nover best", worst, expendable=1),
    )
