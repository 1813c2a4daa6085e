"""The tables of a page, which need no script."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from operator import attrgetter, itemgetter
from typing import Any

from ppsolve.models.core.metrics import measure
from ppsolve.models.core.result import HeuristicStatus
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.heuristics.heuristic import OURS
from ppsolve.solver.views.drawing import reached
from ppsolve.solver.views.figures import ABSENT, figure, figures, percent, ratio
from ppsolve.solver.views.html import text
from ppsolve.solver.views.page.idle import Idle
from ppsolve.solver.views.page.schedules import PageSchedule
from ppsolve.solver.views.reports import best_entry
from ppsolve.solver.views.tables import Field, FittingTable, table_of
from ppsolve.solver.views.wording import unit_of, with_unit


def asset(name: str) -> str:
    """Return the text of a file that pages are made of."""
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def embedded(data: Any) -> str:
    """Return data as JSON that no element around it can mistake for markup.

    A script element ends at the first ``</``, whatever the JSON says; U+2028 and U+2029 end lines
    of older scripts.
    """
    written = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return (
        written.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    )


def overview(schedules: Sequence[PageSchedule]) -> FittingTable:
    """Return the table of all schedules of a page, each against the first."""
    unit = schedules[0].result.time_unit
    fields: tuple[Field[PageSchedule], ...] = (
        Field("schedule", lambda schedule: schedule.title),
        Field(
            f"makespan ({unit})",
            lambda schedule: schedule.length,
            0,
            lambda n: figure(float(n)),
        ),
        Field(
            "to the first",
            lambda schedule: schedule.length / (schedules[0].length or 1) - 1,
            0,
            percent,
        ),
        Field("to its bound", lambda schedule: schedule.gap, 0, percent),
        Field(
            "bubble ratio",
            lambda schedule: (schedule.entry or schedule.result).bubble_ratio,
            0,
            ratio,
        ),
    )
    return table_of(schedules, *fields, caption="Schedules on this page")


def idle_table(page_schedule: PageSchedule) -> FittingTable:
    """Return where the idle time of each compute stream goes."""
    fields = [
        Field(
            head, attrgetter(name), 0, lambda ticks: figure(page_schedule.time(ticks))
        )
        for name, head in _IDLE_PARTS.items()
        if name not in _RARE or any(getattr(idle, name) for idle in page_schedule.idle)
    ]
    return table_of(
        page_schedule.idle,
        Field("stream", lambda idle: idle.name),
        *fields,
        Field("longest of these", lambda idle: _whom(idle, page_schedule.time)),
        caption=f"Idle time in {page_schedule.result.time_unit}",
    )


IDLE_NOTE = (
    "The parts of the idle time add up to it: before the first op (fill), after the last one "
    "(drain), and, between ops, what the next op waited for last; it is held back where it could "
    "have run or has a given start. “Less work” is the work that "
    "the busiest stream has more: so much of the idle time no order can fill."
)
_IDLE_PARTS = {
    "busy": "busy",
    "total": "idle",
    "fill": "fill",
    "drain": "drain",
    "transfers": "data on its way",
    "memory": "for memory",
    "chosen": "held back",
    "short": "less work",
    "waited": "for other streams",
}
_RARE = ("transfers", "memory", "chosen")  # columns that are left out where all are 0


def _whom(idle: Idle, time: Callable[[int], float]) -> str:
    longest = sorted(idle.waits.items(), key=lambda pair: -pair[1])
    names = [f"{stream}: {figure(time(ticks))}" for stream, ticks in longest if ticks]
    suffix = [f"{len(names) - 3} more"] if len(names) > 3 else []
    return ", ".join([*names[:3], *suffix]) or ABSENT


def memory_table(page_schedule: PageSchedule) -> FittingTable:
    """Return the peaks of memory against their caps."""
    return table_of(
        list(peaks(page_schedule)),
        Field("pool", itemgetter(0)),
        Field("peak", itemgetter(1), 0, str),
        Field("capacity", itemgetter(2), 0, str),
        Field("share", itemgetter(3), 0, percent),
        Field("", itemgetter(4)),
        caption="Memory",
    )


def peaks(page_schedule: PageSchedule) -> Iterator[tuple[str, str, str, float, str]]:
    """Yield name, peak, cap and share of each pool, and whether its cap is exceeded in a word."""
    amounts = measure(page_schedule.schedule).peak_memory
    for pool, peak in zip(page_schedule.schedule.problem.pools, amounts, strict=True):
        used, cap = figures(float(peak), float(pool.capacity))
        share, word = (
            float(peak / (pool.capacity or 1)),
            "infeasible" if peak > pool.limit else "",
        )
        yield pool.name, used, with_unit(cap, pool.unit), share, word


def headlines(page_schedule: PageSchedule) -> str:
    """Return status, value, bound, best published heuristic and peak of memory as HTML."""
    items = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd><dd>{text(note)}</dd></div>"
        for name, value, note in _headlines(page_schedule)
    )
    return f'<dl class="headlines">{items}</dl>\n'


def _headlines(page_schedule: PageSchedule) -> Iterator[tuple[str, str, str]]:
    result, unit = page_schedule.result, unit_of(page_schedule.result)
    yield "status", result.status.value, ""
    for name, value in reached(result):
        yield name, *value.partition("  ")[::2]
    heuristics = kind_of(page_schedule.instance).heuristics_of(page_schedule.instance)
    names = {h.name for h in heuristics if not h.source.startswith(OURS)}
    entries = tuple(entry for entry in result.heuristics if entry.name in names)
    best = best_entry(result.model_copy(update={"heuristics": entries}))
    broken = sum(entry.status is HeuristicStatus.INFEASIBLE for entry in entries)
    if best is not None and best.value is not None and result.value is not None:
        saved = with_unit(figure(best.value - result.value), unit)
        over = (
            f"{percent(best.gap)} over best; {saved} saved" if best.gap else "as good"
        )
        yield (
            "best published",
            with_unit(figure(best.value), unit),
            f"{best.name}, {over}",
        )
    elif broken:
        yield "best published", "none", f"{broken} infeasible"
    fullest = max(peaks(page_schedule), key=itemgetter(3), default=None)
    if fullest is not None:
        name, peak, cap, _, word = fullest
        yield "peak of memory", f"{peak} of {cap} {word}".rstrip(), f"on {name}"
