"""Best values and bounds over memory, micro-batches or chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppsolve.models.curve import Curve, CurvePoint
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.printable import printable
from ppsolve.solver.render.curve import NAMES
from ppsolve.solver.render.figures import figure
from ppsolve.solver.render.palette import BLUE, VERMILION, lightened
from ppsolve.solver.render.plot.sheet import AXIS, EDGE, LINE, NAME_SIZE, PROSE, Sheet, width_of
from ppsolve.solver.render.wording import spaced

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 0.62
"""Height of the panel as a share of the figure's width: about the golden ratio."""

MARGIN = 0.06
"""Free share of the vertical axis above the largest figure and below the least one."""


def curve_figure(found: Curve, title: str, inches: float) -> Figure:
    """Return the picture of a curve.

    Parameters
    ----------
    found : Curve
        Points with their values and bounds.
    title : str
        Line above; empty for none.
    inches : float
        Width of the figure.

    Returns
    -------
    Figure
        Values as a line with marks, filled where proved; bounds below, the gap between shaded.

    Raises
    ------
    InputError
        No point has a value or a bound.
    """
    from matplotlib.ticker import MaxNLocator

    points = [(place_of(point), point) for point in found.points]
    heights = [float(y) for _, p in points for y in (p.value, p.bound) if y is not None]
    if not heights:
        raise InputError("no point has a value or a bound to draw", field="points")
    ticks = max(width_of(figure(height)) for height in heights) * PROSE
    top = EDGE + (LINE if title else 0) + NAME_SIZE
    room = HEIGHT * inches * 72
    sheet = Sheet.of(inches, top + room + AXIS + EDGE, ticks + 24, EDGE + NAME_SIZE)
    sheet.title(title, "")
    axes = sheet.panel(top, room)
    _draw(axes, points)
    low, high = min(heights), max(heights)
    spare = MARGIN * ((high - low) or high or 1.0)
    axes.set_ylim(low - spare, high + spare)
    axes.yaxis.set_major_formatter(lambda y, _: figure(float(f"{y:.12g}")))
    axes.xaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda x, _: figure(float(f"{x:.12g}")))
    axes.set_xlabel(axis_of(found), labelpad=1)
    axes.set_ylabel(f"{spaced(found.objective)} ({printable(found.time_unit)})", labelpad=2)
    axes.legend(loc="best", frameon=False)
    return sheet.figure


def place_of(point: CurvePoint) -> float:
    """Return where a point stands: its multiple of p where it has one, else the largest amount."""
    at = point.at if point.multiple is None else point.multiple
    return float(max(at) if isinstance(at, list) else at)


def axis_of(found: Curve) -> str:
    """Return the name of the horizontal axis of a curve."""
    is_multiple = any(point.multiple is not None for point in found.points)
    return f"{NAMES[found.over]} (multiples of p)" if is_multiple else NAMES[found.over]


def _draw(axes: Axes, points: list[tuple[float, CurvePoint]]) -> None:
    values = [(x, float(p.value), p.gap == 0) for x, p in points if p.value is not None]
    bounds = [(x, float(p.bound)) for x, p in points if p.bound is not None]
    both = [(x, p.bound, p.value) for x, p in points if p.bound is not None and p.value is not None]
    if len(both) > 1:
        axes.fill_between(
            [x for x, _, _ in both], [float(low) for _, low, _ in both],
            [float(high) for _, _, high in both], color=lightened(VERMILION, 0.75), linewidth=0,
        )  # fmt: skip
    line: dict[str, Any] = {"color": VERMILION, "linestyle": (0, (4, 2)), "linewidth": 1.0}
    axes.plot(*_columns(bounds), label="lower bound", **line)
    axes.plot(*_columns([(x, y) for x, y, _ in values]), color=BLUE, linewidth=1.2)
    for proved, label in ((True, "best schedule, proved optimal"), (False, "best schedule")):
        own = [(x, y) for x, y, is_proved in values if is_proved is proved]
        face = BLUE if proved else "white"
        marks: dict[str, Any] = {"marker": "o", "markersize": 3.5, "markerfacecolor": face}
        if own:
            axes.plot(*_columns(own), color=BLUE, linestyle="none", label=label, **marks)


def _columns(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
