"""Amounts over time below a chart: memory in use against its capacity, device by device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.render.axis import Window
from ppsolve.solver.render.curves import AmountCurve
from ppsolve.solver.render.drawing import Drawing
from ppsolve.solver.render.figures import compact, figure
from ppsolve.solver.render.page.strips import pool_strips
from ppsolve.solver.render.palette import SKY, VERMILION, lightened
from ppsolve.solver.render.plot.sheet import FAINT, NAME_SIZE, named

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

FILLED = 0.86
"""Share of a strip's height that its largest amount or its cap takes; the rest parts strips."""

SHORT, DIGITS = 10_000, 3
"""Larger amounts, such as bytes, are written in four characters; others in three digits."""

FILL = lightened(SKY, 0.35)
CAP: dict[str, Any] = {"color": VERMILION, "linewidth": 0.8, "linestyle": (0, (3, 1.5))}


@dataclass(frozen=True)
class Amount:
    """An amount over time, in the unit of the schedule.

    Parameters
    ----------
    curve : AmountCurve
        Its name and its steps.
    cap : float, optional
        The most that is allowed.
    """

    curve: AmountCurve
    cap: float | None = None

    @property
    def height(self) -> float:
        """What the full height of its strip stands for."""
        return max(self.curve.most, self.cap or 0) or 1.0


def amounts_of(
    found: Result | HeuristicEntry | None, schedule: Schedule, drawing: Drawing
) -> list[Amount]:
    """Return the amounts over time that belong to a schedule.

    Parameters
    ----------
    found : Result or HeuristicEntry, optional
        What the schedule is from.
    schedule : Schedule
        The schedule.
    drawing : Drawing
        How its kind is drawn.

    Returns
    -------
    list of Amount
        Memory in use by pool; what other kinds show instead.
    """
    tick = float(schedule.problem.scale.tick)
    strips = pool_strips(schedule) if found is None else drawing.strips(found, schedule)
    return [
        Amount(
            AmountCurve(strip.name, [(time * tick, amount) for time, amount in strip.steps]),
            strip.cap,
        )
        for strip in strips
    ]


def peak_of(amount: Amount) -> str:
    """Return the largest amount in a few digits, with its cap where it has one: ``7.5 of 8``."""
    texts = (value for value in (amount.curve.most, amount.cap) if value is not None)
    return " of ".join(compact(v) if v >= SHORT else figure(v, DIGITS) for v in texts)


def amount_legend(amounts: Sequence[Amount]) -> list[Artist]:
    """Return the entries of a legend for what is drawn of amounts."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    found: list[Artist] = []
    capped = [amount for amount in amounts if amount.cap is not None]
    if amounts:
        label = "memory in use" if capped else "amount; full height at the right end"
        found.append(Patch(facecolor=FILL, linewidth=0, label=label))
    if capped:
        found.append(Line2D([], [], label="capacity", **CAP))
    return found


def draw_amounts(
    axes: Axes, amounts: Sequence[Amount], window: Window, row: float, points: float
) -> None:
    """Draw strips one below the other, each with its name and its peak.

    Parameters
    ----------
    axes : Axes
        The panel.
    amounts : sequence of Amount
        What is drawn.
    window : (float, float)
        First and last time.
    row : float
        Height of a strip in points.
    points : float
        Width of the panel.
    """
    for place, amount in enumerate(amounts):
        bottom = len(amounts) - 1 - place
        _draw(axes, amount, window, bottom, points)
    write_beside(axes, [peak_of(amount) for amount in amounts], row, FILLED / 2)
    set_rows(axes, [named(amount.curve.name) for amount in amounts], row, FILLED / 2)
    axes.set_xlim(window)
    axes.set_ylim(-0.1, len(amounts))


def _draw(axes: Axes, amount: Amount, window: Window, bottom: int, points: float) -> None:
    steps = _steps(amount.curve, window, round(points))
    share = FILLED / amount.height
    times, tops = [time for time, _ in steps], [bottom + height * share for _, height in steps]
    axes.fill_between(times, tops, bottom, step="post", color=FILL, linewidth=0)
    if amount.cap is not None:
        level = bottom + amount.cap * share
        axes.plot(window, [level, level], **CAP)


def _steps(curve: AmountCurve, window: Window, most: int) -> list[tuple[float, float]]:
    """Return the amounts from each time on, to the end of the window; columns of many steps."""
    first, last = window
    if len(curve.points) <= most:
        inside = [(time, height) for time, height in curve.points if first < time < last]
        before = [height for time, height in curve.points if time <= first]
        steps = [(first, before[-1] if before else 0.0), *inside]
    else:
        heights = curve.columns(window, most)
        step = (last - first) / most
        steps = [(first + place * step, height) for place, height in enumerate(heights)]
    return [*steps, (last, steps[-1][1])]


def write_beside(axes: Axes, texts: Sequence[str], row: float, middle: float) -> None:
    """Write texts at the right end of rows.

    Parameters
    ----------
    axes : Axes
        The panel, its rows as in `set_rows`.
    texts : sequence of str
        A text for each row.
    row : float
        Height of a row in points.
    middle : float
        Where in a row its text stands, 0 to 1.
    """
    for place, text in _written(texts, row):
        axes.annotate(
            text, (1, len(texts) - 1 - place + middle), (3, 0), ("axes fraction", "data"),
            "offset points", va="center", color=FAINT, fontsize=NAME_SIZE,
        )  # fmt: skip


def _written(texts: Sequence[str], row: float) -> list[tuple[int, str]]:
    """Return the texts of all rows, or of every second, third ... where rows are narrow."""
    every = math.ceil(NAME_SIZE / row)
    return list(enumerate(texts))[::every]


def set_rows(axes: Axes, names: Sequence[str], row: float, middle: float) -> None:
    """Write the names of rows beside them, the first one at the top; of narrow rows only some.

    Parameters
    ----------
    axes : Axes
        The panel; rows are 1 apart and the last one begins at 0.
    names : sequence of str
        The names.
    row : float
        Height of a row in points.
    middle : float
        Where in a row its name stands, 0 to 1.
    """
    shown = _written(names, row)
    axes.set_yticks(
        [len(names) - 1 - place + middle for place, _ in shown], [name for _, name in shown]
    )
    axes.tick_params(axis="y", length=0, labelsize=NAME_SIZE)
