"""A page for each heuristic: its rule, its source, and its schedule above the best one.

The site makes these pages when it is built, so that they are those of the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby

from cases import catalogue_cases
from charts import Panel, stacked, svg

import ppsolve
from ppsolve.models.core.result import HeuristicEntry
from ppsolve.solver.api.registry import all_heuristics
from ppsolve.solver.heuristics.heuristic import OURS, Heuristic
from ppsolve.solver.views.figures import figure
from ppsolve.solver.views.wording import with_unit

FOLDER = "catalogue"
SECONDS = 1
"""Of work, for the best schedule of an instance: five times that proves no other one."""

MORE = {
    "a pipeline": "[Heuristics](../heuristics.md), [gaps found](../gaps.md)",
    "open memory modes": "[Fit into memory](../how-to/memory.md)",
    "layers": "[Layers](../instances.md#layers)",
    "K-FAC": "[K-FAC work in pipeline bubbles](../kfac.md)",
    "a program": "[Overlap of computation and communication](../overlap.md)",
    "everything": "[How a run works](../solver.md)",
}
"""Where more is said, by what the words for what a heuristic is made for begin with."""


@dataclass(frozen=True)
class Shown:
    """A heuristic on an instance.

    Parameters
    ----------
    heuristic : Heuristic
        The heuristic.
    instance : Instance
        What it is shown on.
    entry : HeuristicEntry
        What it reached there.
    """

    heuristic: Heuristic
    instance: ppsolve.Instance
    entry: HeuristicEntry

    @property
    def best(self) -> ppsolve.Result:
        """The best schedule of the instance."""
        return _best(catalogue_cases().index(self.instance))

    @property
    def distance(self) -> float:
        """How much longer it takes than the best schedule, as a share of that."""
        return float(self.entry.value or 0) / float(self.best.value or 1) - 1

    @property
    def verdict(self) -> str:
        """What it reaches, in words."""
        value = self._with_unit(self.entry.value)
        if self.entry.status != "feasible":
            return f"infeasible: {self.entry.reason}"
        return (
            f"{value}, {_percent(self.distance)} over best"
            if self.distance
            else f"{value}, best"
        )

    def _with_unit(self, value: float | None) -> str:
        return with_unit(figure(value), self.best.value_unit or self.best.time_unit)

    def picture(self) -> str:
        """Return both schedules as SVG."""
        name, best = self.heuristic.name, self.best
        word = (
            "proved" if best.status is ppsolve.Status.OPTIMAL else f"bound {best.bound}"
        )
        panels = [
            Panel(f"{name}: {self.verdict.split(':')[0]}", self.entry, self.instance),
            Panel(f"best, {word}: {self._with_unit(best.value)}", best, self.instance),
        ]
        return svg(partial(stacked, panels))


@cache
def _best(place: int) -> ppsolve.Result:
    """Return the best schedule of an instance by its place, the same one everywhere."""
    instance = catalogue_cases()[place]
    return ppsolve.optimize(instance, time_limit=SECONDS, deterministic=True, workers=1)


@cache
def shown(name: str) -> Shown:
    """Return a heuristic on the first instance that it can run on, if it can be on a feasible one.

    Raises
    ------
    LookupError
        There is no instance for it.
    """
    found = []
    for each in _tried(name):
        if each.entry.status == "feasible":
            return each
        found.append(each)
    if not found:
        raise LookupError(
            f"docs/making/cases.py has no instance for the heuristic {name}"
        )
    return found[0]


def _tried(name: str) -> Iterator[Shown]:
    """Yield a heuristic on each instance for which it has a schedule."""
    heuristic = all_heuristics()[name]
    for instance in catalogue_cases():
        try:
            entry = ppsolve.simulate(instance, name)
        except ppsolve.PpsolveError:
            continue
        if entry.schedule is not None:
            yield Shown(heuristic, instance, entry)


def page_of(name: str) -> str:
    """Return the page of a heuristic, in Markdown."""
    each = shown(name)
    heuristic = each.heuristic
    more = next(
        text for begin, text in MORE.items() if heuristic.made_for.startswith(begin)
    )
    lines = [
        f"# {name}",
        f"{_sentence(heuristic.summary)}",
        f"- **Schedules** {heuristic.made_for}",
        f"- **Needs** {_needs(heuristic)}",
        f"- **Source**: {'ppsolve itself' if heuristic.source == OURS else heuristic.source}",
        *(
            [
                "- **Searches**: tries many schedules, until its share of the time is over"
            ]
            * heuristic.is_search
        ),
        f"- **Here** (`{each.instance.name}`): {each.verdict}",
        f"- **More**: {more}",
        f"![A schedule of {name} above, the best one below]({name}.svg)",
    ]
    if each.entry.orders and each.instance.kind == "pipeline":
        lines += [
            f"The order of device 0 above:\n\n```\n{_wrapped(each.entry.orders[0])}\n```"
        ]
    return (
        "\n\n".join(lines).replace("\n\n- ", "\n- ").replace("\n- ", "\n\n- ", 1) + "\n"
    )


def _needs(heuristic: Heuristic) -> str:
    """Return its requirements on an instance, in words."""
    around = heuristic.name.removeprefix("pinned-")
    if around != heuristic.name:
        return f"of its pipeline what [{around}]({around}.md) needs"
    return "; ".join(need.words for need in heuristic.requirements) or "nothing more"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


def _wrapped(order: list[str], each: int = 16) -> str:
    """Return an order with some ops in a line."""
    return "\n".join(
        " ".join(order[at : at + each]) for at in range(0, len(order), each)
    )


def index_page() -> str:
    """Return the list of all heuristics, in Markdown."""
    lines = [
        "# Catalogue",
        "All heuristics that `ppsolve heuristics` lists, each with its schedule of a small "
        "instance and the best one. *Over best* holds for that instance only; "
        "[gaps found](../gaps.md) measures heuristics on many instances.",
    ]
    for made_for, group in groupby(
        all_heuristics().values(), key=lambda one: one.made_for
    ):
        rows = [_row(heuristic) for heuristic in group]
        head = (
            "| heuristic | what it does | from | over best |\n| --- | --- | --- | --- |"
        )
        lines += [f"## For {made_for}", "\n".join([head, *rows])]
    return "\n\n".join(lines) + "\n"


def _row(heuristic: Heuristic) -> str:
    each = shown(heuristic.name)
    over = (
        _percent(each.distance)
        if each.entry.status == "feasible"
        else each.entry.status
    )
    cells = (
        f"[{heuristic.name}]({heuristic.name}.md)",
        heuristic.summary,
        heuristic.source,
        over,
    )
    return f"| {' | '.join(cells)} |"


@cache
def catalogue_files() -> dict[str, str]:
    """Return the files of the catalogue by their place on the site: pages and pictures."""
    files = {f"{FOLDER}/index.md": index_page()}
    for name in all_heuristics():
        files[f"{FOLDER}/{name}.md"] = page_of(name)
        files[f"{FOLDER}/{name}.svg"] = shown(name).picture()
    return files
