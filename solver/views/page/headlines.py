"""What a reader wants to know first of a result, above its chart."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from ppsolve.models.core.result import HeuristicStatus
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.heuristics.heuristic import OURS
from ppsolve.solver.views.drawing import reached
from ppsolve.solver.views.figures import figure, percent
from ppsolve.solver.views.html import text
from ppsolve.solver.views.page.schedules import PageSchedule
from ppsolve.solver.views.page.tables import peaks
from ppsolve.solver.views.reports import best_entry
from ppsolve.solver.views.wording import unit_of, with_unit


def headlines(shown: PageSchedule) -> str:
    """Return status, value, bound, best published heuristic and peak of memory as HTML."""
    items = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd><dd>{text(note)}</dd></div>"
        for name, value, note in _headlines(shown)
    )
    return f'<dl class="headlines">{items}</dl>\n'


def _headlines(shown: PageSchedule) -> Iterator[tuple[str, str, str]]:
    result, unit = shown.result, unit_of(shown.result)
    yield "status", result.status.value, ""
    for name, value in reached(result):
        yield name, *value.partition("  ")[::2]
    known = kind_of(shown.instance).heuristics_of(shown.instance)
    names = {each.name for each in known if not each.source.startswith(OURS)}
    entries = tuple(each for each in result.heuristics if each.name in names)
    best = best_entry(result.model_copy(update={"heuristics": entries}))
    broken = sum(each.status is HeuristicStatus.INFEASIBLE for each in entries)
    if best is not None and best.value is not None and result.value is not None:
        saved = with_unit(figure(best.value - result.value), unit)
        over = f"{percent(best.gap)} over best; {saved} saved" if best.gap else "as good"
        yield "best published", with_unit(figure(best.value), unit), f"{best.name}, {over}"
    elif broken:
        yield "best published", "none", f"{broken} infeasible"
    fullest = max(peaks(shown), key=itemgetter(3), default=None)
    if fullest is not None:
        name, peak, cap, _, word = fullest
        yield "peak of memory", f"{peak} of {cap} {word}".rstrip(), f"on {name}"
