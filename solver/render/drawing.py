"""How instances, schedules and results of a kind are drawn; the default suits any kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.result import (
    HeuristicEntry,
    HeuristicStatus,
    Result,
    ScheduleDocument,
)
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.render import schedule_view
from ppsolve.solver.render.figures import ABSENT, figure, figures, percent, ratio
from ppsolve.solver.render.schedule_view import Window
from ppsolve.solver.render.tables import Column, FittingTable, facts, indented
from ppsolve.solver.render.wording import (
    ENTRY_STYLE,
    OBJECTIVE_WORDS,
    entry_status,
    separated,
)

Facts = Iterator[tuple[str, str]]
"""Names and values, a line each."""

HINT = Text("add a RESULT or --heuristic NAME to draw a schedule", "dim")


@dataclass(frozen=True)
class Frame:
    """What of a schedule is drawn.

    Parameters
    ----------
    links : bool
        Also draw links and comm streams.
    window : (float, float or None)
        Part of the time axis, in the schedule's unit; ``None`` is its end.
    iterations : (int, int), optional
        First and last iteration, of schedules that repeat.
    """

    links: bool = False
    window: Window = (0, None)
    iterations: tuple[int, int] | None = None

    def refuse_iterations(self) -> None:
        """Refuse iterations where nothing repeats.

        Raises
        ------
        InputError
            Iterations are asked for.
        """
        if self.iterations is not None:
            raise InputError(
                "expected the schedule of a K-FAC refresh around a pinned pipeline",
                field="--iteration",
            )


class Drawing:
    """How a kind is drawn: facts and tables of its documents, and views of its schedules."""

    def summary(self, result: Result) -> str:
        """Return what the one-line summary of a result says beside value, bound and gap."""
        return ""

    def facts(self, result: Result, instance: Instance | None) -> Facts:
        """Yield what a result has reached; the instance, where known, gives its caps."""
        unit = result.time_unit
        is_span = result.objective is Objective.DEVICE_SPAN
        other = result.makespan if is_span else result.device_span
        value, second, lower = figures(result.value, other, result.bound)
        if result.value is not None:
            yield OBJECTIVE_WORDS[result.objective], f"{value} {unit}{by(result.best_by)}"
            yield "makespan" if is_span else "device span", f"{second} {unit}"
        if result.bound is not None:
            yield "lower bound", f"{lower} {unit}{by(result.bound_by)}"
        if result.gap is not None:
            yield "gap", percent(result.gap)
        if result.bubble_ratio is not None:
            over = result.bubble_over_compute
            extra = f"  ({ratio(over)} of compute)" if over is not None else ""
            yield "bubble ratio", ratio(result.bubble_ratio) + extra

    def parts(self, result: Result) -> Iterator[RenderableType]:
        """Yield tables of what a result consists of, such as its devices."""
        yield from ()

    def heuristics(
        self, entries: Sequence[HeuristicEntry], result: Result, *, verbose: bool
    ) -> Iterator[RenderableType]:
        """Yield the table of heuristics, the best first."""
        shown = [e for e in entries if verbose or e.status is not HeuristicStatus.NOT_APPLICABLE]
        if shown:
            table = FittingTable(
                Column("heuristic", is_text=True),
                Column(OBJECTIVE_WORDS[result.objective]),
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
            text = f"not applicable: {', '.join(hidden)} (--verbose says why)"
            yield indented(Text(text, "dim"))

    def notes(self, result: Result, *, verbose: bool) -> Iterator[RenderableType]:
        """Yield what is said below the table of heuristics."""
        yield from ()

    def reason(self, entry: HeuristicEntry) -> str:
        """Return in plain words why a heuristic has no valid schedule."""
        return entry.reason or ""

    def entry_facts(self, entry: HeuristicEntry, instance: Instance) -> Facts:
        """Yield what one heuristic reaches on an instance."""
        unit = instance.time_unit
        if entry.reason:
            yield "reason", separated(entry.reason, unit)
        times = figures(entry.makespan, entry.device_span)
        for name, text in zip(("makespan", "device span"), times, strict=True):
            yield name, text if text == ABSENT else f"{text} {unit}"
        yield "bubble ratio", ratio(entry.bubble_ratio)
        peaks = entry.peak_memory or {}
        for pool, peak in zip(peaks, figures(*peaks.values()), strict=True):
            yield f"peak, {pool}", peak

    def entry_parts(self, entry: HeuristicEntry, instance: Instance) -> Iterator[RenderableType]:
        """Yield tables of what one heuristic's schedule consists of."""
        yield from ()

    def describe(self, instance: Instance, problem: Problem) -> RenderableType:
        """Return what an instance consists of, and what can be done with it."""
        title = Text(f"{instance.name}: a {instance.kind} instance", "bold")
        return Group(title, facts([*self.shape(instance), *sizes(problem)]), HINT)

    def shape(self, instance: Instance) -> Facts:
        """Yield what there is to say of an instance before it is lowered."""
        yield from ()

    def recognises(self, document: ScheduleDocument) -> bool:
        """Whether a schedule without its instance is of this kind."""
        return False

    def view(
        self,
        title: str,
        instance: Instance,
        schedule: Schedule,
        source: Result | HeuristicEntry | None,
        frame: Frame,
    ) -> RenderableType:
        """Return the view of a schedule of a known instance.

        Parameters
        ----------
        title : str
            First line.
        instance : Instance
            The instance.
        schedule : Schedule
            A schedule of it.
        source : Result or HeuristicEntry, optional
            What the schedule is from.
        frame : Frame
            What is drawn.

        Raises
        ------
        InputError
            Iterations are asked for that are not there.
        """
        frame.refuse_iterations()
        return schedule_view.view_of_schedule(
            title, schedule, links=frame.links, window=frame.window
        )

    def view_alone(
        self,
        title: str,
        document: ScheduleDocument,
        source: Result | HeuristicEntry | None,
        frame: Frame,
    ) -> RenderableType:
        """Return the view of a schedule without its instance; as `view`."""
        frame.refuse_iterations()
        return schedule_view.view_of_document(
            title, document, source, links=frame.links, window=frame.window
        )

    def warning(
        self,
        instance: Instance,
        schedule: Schedule,
        source: Result | HeuristicEntry | None,
    ) -> str | None:
        """Return what is odd about a result beside its schedule, None if nothing is."""
        return None

    def comparison(
        self, results: Sequence[Result], *, fold_names: bool
    ) -> Iterator[RenderableType]:
        """Yield tables over results of this kind, beside those over all results."""
        yield from ()

    def is_repeated(self, name: str, results: Sequence[Result]) -> bool:
        """Whether a heuristic is a variant that reaches what its original does, everywhere."""
        return False


def by(name: str | None) -> str:
    """Return who found something, to stand behind it."""
    return f"  by {name}" if name else ""


def sizes(problem: Problem) -> Facts:
    """Yield how large a problem is."""
    unit = problem.scale.unit
    yield "objective", problem.objective.value.replace("_", " ")
    yield "ops", figure(problem.num_ops)
    yield "precedences", figure(len(problem.before))
    work = [
        int(problem.duration[problem.ops_by_resource[resource]].sum())
        for resource in problem.span_resources.tolist()
    ]
    if work:
        ends = figures(*(problem.scale.time(ticks) for ticks in sorted({min(work), max(work)})))
        yield "work per device", f"{' to '.join(ends)} {unit}"
    if problem.num_ops:
        longest = problem.scale.time(int(np.max(problem.duration)))
        yield "longest op", f"{figure(longest)} {unit}"
    for pool in problem.pools[:1]:
        yield f"memory, {pool.name}", f"capacity {figure(float(pool.capacity))}"
