"""Draw the pictures of the pages: ``python docs/making/make_pictures.py [NAME ...]``.

Each picture is an SVG file in `docs/pictures`, the same on every machine with the same version of
matplotlib. Nothing is drawn that was not solved here, and nothing is called best that is not
proved. All of them take about a minute of processor time, most of it for the proof with three
activations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cases import HALVES, INSTANCES, UNEVEN, WAITING, WHOLE, best, capped
from charts import INCHES, Panel, stacked, svg

import ppsolve
from ppsolve.models.core.result import ScheduleDocument
from ppsolve.solver.kinds.pipeline.kind import PIPELINE
from ppsolve.solver.kinds.pipeline.runtimes.narrowing import RuntimeNarrowing
from ppsolve.solver.views.colours import BLUE, VERMILION, YELLOW, lightened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ppsolve.solver.views.chart import Chart

FOLDER = Path(__file__).resolve().parents[1] / "pictures"
TIGHT, ROOMY = 3, 6
"""Activations of the two schedules that show what memory costs."""

CAPACITIES = range(TIGHT, 10)
IDLE = lightened(YELLOW, 0.5)

solved = cache(lambda capacity: best(capped(capacity)))


def uneven() -> Figure:
    """Return 1F1B, ZB-H1 and the optimum of uneven stages."""
    result = best(UNEVEN)
    panels = [_beside(name, result) for name in ("1f1b", "zb-h1")]
    title = f"best, proved: {result.value:,.0f} us"
    return stacked([*panels, Panel(title, result, UNEVEN)])


def _beside(name: str, result: ppsolve.Result) -> Panel:
    entry = next(entry for entry in result.heuristics if entry.name == name)
    assert entry.value is not None
    assert entry.gap is not None
    title = f"{name}: {entry.value:,.0f} us, {100 * entry.gap:.1f} % longer"
    return Panel(title, ppsolve.simulate(UNEVEN, name), UNEVEN)


def bubble() -> Figure:
    """Return 1F1B with its idle time marked."""
    entry = ppsolve.simulate(WHOLE, "1f1b")
    return stacked(
        [Panel(f"1f1b: {entry.value:,.0f} us", entry, WHOLE)], _mark_idle, IDLE
    )


def _mark_idle(axes: Axes, chart: Chart) -> None:
    """Colour whatever is idle, and name one piece of each sort."""
    for place, row in enumerate(chart.rows):
        ends = [0.0, *(bar.end for bar in row.bars)]
        starts = [*(bar.start for bar in row.bars), chart.end]
        spans = [
            (end, start - end)
            for end, start in zip(ends, starts, strict=True)
            if start > end
        ]
        axes.broken_barh(spans, (place + 0.06, 0.88), color=IDLE, linewidth=0)
    for text, time, row in (("fill", 15, 3), ("wait", 70, 0), ("drain", 300, 3)):
        axes.text(time, row + 0.5, text, ha="center", va="center_baseline", fontsize=7)


def halves() -> Figure:
    """Return a zero-bubble schedule of the same work."""
    result = best(HALVES)
    return stacked(
        [Panel(f"{result.best_by}, proved: {result.value:,.0f} us", result, HALVES)]
    )


def memory() -> Figure:
    """Return the best schedules with little and with more memory."""
    return stacked([_with_memory(capacity) for capacity in (TIGHT, ROOMY)])


def _with_memory(capacity: int) -> Panel:
    result = solved(capacity)
    title = f"room for {capacity} activations, best, proved: {result.value:,.0f} us"
    return Panel(title, result, capped(capacity), pool=0)


def curve() -> Figure:
    """Return the best makespan over the capacity, with the bound of work."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    values = [float(solved(capacity).value or 0) for capacity in CAPACITIES]
    work = max(float(b.value) for b in solved(TIGHT).bounds if b.name == "work")
    figure = Figure(figsize=(INCHES, 2.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.step(CAPACITIES, values, where="post", color=BLUE)
    axes.plot(
        CAPACITIES, values, "o", color=BLUE, markersize=4, label="best makespan, proved"
    )
    axes.axhline(
        work, color="black", linestyle="--", linewidth=1, label="work: with any memory"
    )
    axes.set_xlabel("capacity of each device (activations)")
    axes.set_ylabel("makespan (us)")
    axes.set_ylim(0, 1.1 * max(values))
    axes.legend(loc="lower right")
    return figure


def bound() -> Figure:
    """Return heuristics from above and bounds from below on one axis."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    result = solved(TIGHT)
    optimum = float(result.value or 0)
    above = {
        e.name: float(e.value)
        for e in result.heuristics
        if e.value and e.gap is not None
    }
    below = {entry.name: float(entry.value) for entry in result.bounds} | {
        "cp-sat": optimum
    }
    figure = Figure(figsize=(INCHES, 2.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    _draw_side(axes, above, optimum, VERMILION, 1)
    _draw_side(axes, below, optimum, BLUE, -1)
    axes.axvline(optimum, color="black", linewidth=1, linestyle="--")
    axes.set_yticks([1.8, -1.8], ["heuristics:\nat most", "bounds:\nat least"])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlim(0.75 * optimum, 1.24 * optimum)
    axes.set_ylim(-4.2, 4.2)
    axes.set_xlabel(f"makespan (us); the optimum, where both meet, is {optimum:,.0f}")
    return figure


def _draw_side(
    axes: Axes, values: dict[str, float], optimum: float, colour: str, side: int
) -> None:
    """Draw what is known from one side, nearest the optimum first; each name on a line of its own.

    Of equal values the first one is named, and what lies outside of the axis is left out.
    """
    known: dict[float, str] = {}
    for name, value in values.items():
        if 0.75 * optimum < value < 1.2 * optimum:
            known.setdefault(value, name)
    for line, value in enumerate(
        sorted(known, key=lambda value: abs(value - optimum)), 1
    ):
        height = side * (0.2 + 0.72 * line)
        axes.plot([value, value], [0, height], color=colour, linewidth=1)
        axes.plot(value, height, "o", color=colour, markersize=3.5)
        axes.annotate(
            f"{known[value]} {value:,.0f}", (value, height), (5 * side, 0), "data",
            "offset points", ha="left" if side > 0 else "right", va="center_baseline",
            bbox={"facecolor": "white", "linewidth": 0, "pad": 0.8},
        )  # fmt: skip


def waits() -> Figure:
    """Return what waiting for transfers costs: default flags, best flags, best program."""
    task = RuntimeNarrowing(PIPELINE, WAITING, "megatron", exact=False).task()
    task.find_bounds()
    panels = []
    for words, name in (
        ("Megatron-LM, default flags", "groups of 2"),
        ("Megatron-LM, best flags", "groups of 4, warm-up flush"),
    ):
        outcome = task.outcomes[name]
        document = ScheduleDocument.of(outcome.schedule)
        entry = task.entry(outcome).model_copy(update={"schedule": document})
        panels.append(Panel(f"{words}: {entry.value:,.0f} us", entry, WAITING))
    result = best(WAITING, runtime="torch")
    title = f"PyTorch, best program, proved: {result.value:,.0f} us"
    return stacked([*panels, Panel(title, result, WAITING)])


def compiled() -> Figure:
    """Return an FSDP step as torch compiled it, and the best order with as much memory."""
    return _before_and_after("fsdp-step", "original", "as compiled")


def recommended() -> Figure:
    """Return what the recommended passes make of an FSDP step, and the best order."""
    name = "inductor-recommended"
    return _before_and_after("fsdp-resharded-step-free", name, "passes of torch")


def _before_and_after(graph: str, heuristic: str, words: str) -> Figure:
    instance = ppsolve.load_instance(INSTANCES / "overlap" / f"compiled-{graph}.json")
    result = best(instance)
    panels = []
    for text, found in (
        (words, ppsolve.simulate(instance, heuristic)),
        ("best, proved", result),
    ):
        megabytes = found.peak_live_bytes / 1e6
        title = f"{text}: {found.makespan:,.0f} us, peak of {megabytes:,.0f} MB"
        panels.append(Panel(title, found, instance, is_bounded=False))
    return stacked(panels)


PICTURES: dict[str, Callable[[], Figure]] = {
    "uneven": uneven,
    "bubble": bubble,
    "halves": halves,
    "memory": memory,
    "curve": curve,
    "bound": bound,
    "waits": waits,
    "compiled": compiled,
    "recommended": recommended,
}
"""By the name of the file."""


def main(names: list[str]) -> None:
    """Draw the pictures of these names, all by default."""
    FOLDER.mkdir(exist_ok=True)
    for name in names or PICTURES:
        text = svg(PICTURES[name])
        (FOLDER / f"{name}.svg").write_text(text, encoding="utf-8")
        print(f"{name}.svg {len(text):,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
