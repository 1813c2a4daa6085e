"""The tables of a page, which need no script."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from rich.console import Console, RenderableType

from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result
from ppsolve.models.documents.printable import printable
from ppsolve.models.plan.result import Plan, PlanRow
from ppsolve.solver.render.drawings import drawing_of
from ppsolve.solver.render.figures import ABSENT, figure, figures, percent, ratio
from ppsolve.solver.render.page.idle import Idle
from ppsolve.solver.render.page.schedules import PageSchedule
from ppsolve.solver.render.plan import COUNTED, goodput_text, range_text
from ppsolve.solver.render.reports import bottleneck, ending, ranked
from ppsolve.solver.render.wording import entry_status, spaced, unit_of


def asset(name: str) -> str:
    """Return the text of a file that pages are made of."""
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def text(value: str) -> str:
    """Return a text as HTML shows it, control characters written out."""
    return escape(printable(value))


def embedded(data: Any) -> str:
    """Return data as JSON that no element around it can mistake for markup.

    A script element ends at the first ``</``, whatever the JSON says; U+2028 and U+2029 end lines
    of older scripts.
    """
    written = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return written.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str, words: Sequence[int] = (0,)
) -> str:
    """Return a table.

    Parameters
    ----------
    heads : sequence of str
    rows : iterable of sequence of str
        Cells as text.
    caption : str
    words : sequence of int
        Columns of words, from 0; the others hold numbers.

    Returns
    -------
    str
        The element, in a box that scrolls sideways where it is too wide.
    """
    shown = "".join(_row(row, "td", words) for row in rows)
    return (
        f'<div class="wide" tabindex="0"><table><caption>{text(caption)}</caption>'
        f"<thead>{_row(heads, 'th', words)}</thead><tbody>{shown}</tbody></table></div>\n"
    )


def _row(cells: Sequence[str], tag: str, words: Sequence[int]) -> str:
    inner = []
    for number, cell in enumerate(cells):
        kind = ' class="word"' if number in words else ""
        scope = ' scope="col"' if tag == "th" else ""
        inner.append(f"<{tag}{kind}{scope}>{text(cell)}</{tag}>")
    return f"<tr>{''.join(inner)}</tr>"


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and values."""
    items = "".join(f"<div><dt>{text(n)}</dt><dd>{text(v)}</dd></div>" for n, v in rows)
    return f"<dl>{items}</dl>\n"


def overview(shown: Sequence[PageSchedule]) -> str:
    """Return the table of all schedules of a page, each against the first."""
    rows = [_overview_row(each, shown[0]) for each in shown]
    unit = shown[0].result.time_unit
    heads = ["schedule", f"makespan ({unit})", "to the first", "to its bound", "bubble ratio"]
    return table(heads, rows, "Schedules on this page")


def _overview_row(each: PageSchedule, first: PageSchedule) -> list[str]:
    scale, makespan = each.schedule.problem.scale, each.schedule.makespan
    length = float(makespan * scale.tick)
    least = float(first.schedule.makespan * first.schedule.problem.scale.tick)
    is_alike = scale.unit == first.schedule.problem.scale.unit
    bound = each.bound
    return [
        each.title,
        figure(scale.time(makespan)) + ("" if is_alike else f" {scale.unit}"),
        percent(length / least - 1) if is_alike and least else ABSENT,
        ABSENT if bound is None or not length else percent((length - bound) / length),
        ratio((each.entry or each.result).bubble_ratio),
    ]


def result_part(result: Result, shown: PageSchedule | None = None) -> str:
    """Return the facts and tables of a result: value, bounds, heuristics, parts of its kind.

    Parameters
    ----------
    result : Result
    shown : PageSchedule, optional
        Its best schedule; gives caps that the result does not repeat.

    Returns
    -------
    str
    """
    drawing = drawing_of(result.kind)
    instance = None if shown is None else shown.instance
    status = [("status", result.status.value), ("best by", result.best_by or ABSENT)]
    rows = [*status, *drawing.facts(result, instance), *bottleneck(result)]
    rows += ending(result, verbose=False)
    parts = [facts(rows), *map(plain, drawing.parts(result, result.time_unit))]
    notes = map(plain, drawing.notes(result, verbose=True))
    return "".join([*parts, _heuristics_table(result), *notes, _bounds_table(result)])


def _bounds_table(result: Result) -> str:
    if not result.bounds:
        return ""
    found = sorted(result.bounds, key=lambda bound: -bound.value)
    rows = [[bound.name, figure(bound.value)] for bound in found]
    return table(["bound", unit_of(result)], rows, "Lower bounds")


def _heuristics_table(result: Result) -> str:
    if not result.heuristics:
        return ""
    entries = ranked(result.heuristics)
    ran = [entry for entry in entries if entry.status is not HeuristicStatus.NOT_APPLICABLE]
    rows = [
        [
            entry.name,
            figure(entry.value),
            percent(entry.gap),
            ratio(entry.bubble_ratio),
            entry_status(entry, result, verbose=False),
        ]
        for entry in ran
    ]
    objective, unit = spaced(result.objective), unit_of(result)
    value = objective if objective == unit else f"{objective} ({unit})"
    heads = ["heuristic", value, "over best", "bubble", "status"]
    found = table(heads, rows, "Heuristics", words=(0, 4)) if rows else ""
    return found + _not_applicable([entry for entry in entries if entry not in ran])


def _not_applicable(entries: Sequence[HeuristicEntry]) -> str:
    if not entries:
        return ""
    rows = [[entry.name, entry.reason or ABSENT] for entry in entries]
    inner = table(["heuristic", "why"], rows, "Heuristics that do not apply", words=(0, 1))
    return f"<details><summary>{len(rows)} heuristics do not apply</summary>{inner}</details>\n"


def plain(part: RenderableType) -> str:
    """Return a table of the terminal as preformatted text."""
    console = Console(width=110, color_system=None, file=None, highlight=False)
    with console.capture() as capture:
        console.print(part)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    body = "\n".join(text(line) if line else "" for line in lines)
    return f'<pre class="wide" tabindex="0">{body}</pre>\n' if body.strip() else ""


def idle_table(shown: PageSchedule) -> str:
    """Return where the idle time of each compute stream goes; empty without such streams."""
    found = shown.idle
    if not found:
        return ""
    scale = shown.schedule.problem.scale
    kinds = _idle_columns(found)
    rows = []
    for idle in found:
        times = [getattr(idle, name) for name in kinds]
        waits = sum(idle.waits.values())
        cells = [idle.busy, idle.total, *times, waits]
        rows.append(
            [
                idle.name,
                *(_time(scale.time(c)) for c in cells),
                _whom(idle, scale.time),
                _time(scale.time(idle.short)),
            ]
        )
    heads = [
        "stream",
        "busy",
        "idle",
        *(kinds[name] for name in kinds),
        "for other streams",
        "the longest",
        "less work",
    ]
    return table(heads, rows, f"Idle time in {scale.unit}") + _IDLE_NOTE


_IDLE_NOTE = (
    "<p>The parts of the idle time add up to it: before the first op (fill), after the last one "
    "(drain), and, between ops, what the next op waited for last; it is held back where it could "
    "have run or has a given start. “Less work” is the work that "
    "the busiest stream has more: so much of the idle time no order can fill.</p>\n"
)
_ALL_PARTS = {
    "fill": "fill",
    "drain": "drain",
    "transfers": "data on its way",
    "memory": "for memory",
    "chosen": "held back",
}


def _idle_columns(found: Sequence[Idle]) -> dict[str, str]:
    always = ("fill", "drain")
    return {
        name: head
        for name, head in _ALL_PARTS.items()
        if name in always or any(getattr(idle, name) for idle in found)
    }


def _time(value: float) -> str:
    return figure(value) if value else "0"


def _whom(idle: Idle, time: Callable[[int], float]) -> str:
    longest = sorted(idle.waits.items(), key=lambda pair: -pair[1])
    names = [f"{stream}: {figure(time(ticks))}" for stream, ticks in longest if ticks]
    more = [f"{len(names) - 3} more"] if len(names) > 3 else []
    return ", ".join([*names[:3], *more]) or ABSENT


def memory_table(shown: PageSchedule) -> str:
    """Return the peaks of memory against their caps; empty without pools."""
    pools = shown.schedule.problem.pools
    rows = []
    for pool, peak in zip(pools, shown.metrics.peak_memory, strict=True):
        used, cap = figures(float(peak), float(pool.capacity))
        share = percent(float(peak / pool.capacity)) if pool.capacity else ABSENT
        rows.append([pool.name, used, cap, share])
    heads = ["pool", "peak", "capacity", "share"]
    return table(heads, rows, "Memory") if rows else ""


def plan_part(plan: Plan) -> str:
    """Return the facts of a plan and the table of its configurations."""
    counts = {name: getattr(plan.counts, name) for name in COUNTED}
    decided = (f"{number:,} {spaced(name)}" for name, number in counts.items() if number)
    rows = [
        ("status", plan.status.value),
        ("goodput", goodput_text(plan.goodput)),
        ("gap", percent(plan.gap)),
        ("configurations", figure(plan.counts.enumerated)),
        ("decided", ", ".join(decided)),
    ]
    heads = ["configuration", "verdict", "rank", "goodput (samples/s)", "step", "schedule"]
    shown = [_plan_row(row, plan.time_unit) for row in plan.table]
    return facts(rows) + table(heads, shown, "Configurations", words=(0, 1))


def _plan_row(row: PlanRow, unit: str) -> list[str]:
    chosen = row.configuration
    shape = (
        f"{chosen.pipeline_depth} deep x {chosen.replicas}, {chosen.placement}"
        f"{f' x {chosen.virtual_stages}' if chosen.virtual_stages > 1 else ''}, "
        f"{chosen.microbatches} micro-batches of {chosen.microbatch_size}, {chosen.backward}"
    )
    return [
        shape,
        f"{row.verdict.value}: {row.reason}",
        str(row.rank),
        ABSENT if row.goodput is None else range_text(row.goodput),
        ABSENT if row.step_time is None else f"{range_text(row.step_time)} {unit}",
        row.schedule_by or ABSENT,
    ]
