"""Pictures of a report as SVG: performance profiles, and the mean gap over time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

from ppsolve.models.documents.printable import printable
from ppsolve.solver.bench.report.cases import Role
from ppsolve.solver.bench.report.report import FamilyFigures, Report
from ppsolve.solver.bench.report.rows import GapCurve, PerformanceProfile
from ppsolve.solver.render.bench.sections import ANYTIME, PROFILES
from ppsolve.solver.render.figure_file import PANEL_INCHES, STYLE, figure_bytes
from ppsolve.solver.render.figures import shorten
from ppsolve.solver.render.palette import SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LINES = 9
"""Lines of one picture: the colours once plain, half of them dashed; more cannot be told apart."""

DASHES = ("-", "--", ":")
LONGEST_LABEL = 28
WIDEST_RATIO = 4.0
"""Ratios beyond are cut off: there a method is no alternative. Shares at the edge stay exact."""

MOST_STEPS = 250
"""Steps of one line: the picture is about 250 points high, so that more cannot be seen."""

LEAST_RATIO = 1.02
"""The axis of ratios reaches this far even where all methods are equal."""

LINEAR_BELOW = 0.001
"""Gaps below 0.1 % are drawn linearly, so that 0 has a place on a logarithmic axis."""

INK = "#0a0b0c"
"""Colour of texts and axes in a file; within a page it becomes the page's own, dark or light."""

OWN_STYLE = {
    **STYLE,
    "text.parse_math": False,
    "grid.color": "#80808050",
    "savefig.transparent": True,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color", "axes.titlecolor"), INK),
}

RATIO_TICKS = (1.0, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 4.0)
FEWEST_APART = 0.06
"""Ticks of ratios that are nearer than this share of the axis are left out."""

SHARE_TICKS = (0.0, 0.001, 0.01, 0.1, 1.0)


@dataclass(frozen=True)
class Picture:
    """A picture as SVG text, and what it shows in words."""

    name: str
    title: str
    svg: str

    def inline(self) -> str:
        """Return the picture as part of a page: its own ids, its ink that of the page."""
        start = self.svg.index("<svg")
        text = re.sub(r"<metadata>.*?</metadata>", "", self.svg[start:], flags=re.DOTALL)
        prefix = re.sub(r"\W", "-", self.name)
        text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", text)
        text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
        text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
        return text.replace(INK, "currentColor")


def draw_pictures(report: Report) -> Iterator[Picture]:
    """Yield the pictures of a report; equal reports give equal pictures."""
    yield from _profiles(PROFILES, report.every, "Performance profiles, all families")
    curves = _chosen_curves(report)
    title = "Mean gap over time" + (
        f", {len(curves) - 1} of {len(report.families)} families"
        if 1 < len(curves) <= len(report.families)
        else ""
    )
    yield Picture(ANYTIME, title, _svg(title, lambda axes: _draw_gaps(axes, curves)))
    if len(report.families) > 1:
        for part in report.families:
            name = part.total.family
            yield from _profiles(f"{PROFILES}-{name}", part, f"Performance profiles, {name}")


def _profiles(name: str, part: FamilyFigures, title: str) -> Iterator[Picture]:
    chosen = _chosen_profiles(part)
    if chosen:
        yield Picture(name, title, _svg(title, lambda axes: _draw_profiles(axes, chosen)))


def _chosen_profiles(part: FamilyFigures) -> list[PerformanceProfile]:
    """Return ours, those of peers, and the heuristics that reach most, in a steady order."""
    order = list(Role)
    known = [profile for profile in part.profiles if profile.steps]
    known.sort(key=lambda one: (order.index(one.method.role), -_area(one), one.method.name))
    return known[:MOST_LINES]


def _area(profile: PerformanceProfile) -> float:
    """Return the area under a profile up to the edge of the picture."""
    return sum(
        share * (min(right, WIDEST_RATIO) - ratio)
        for (ratio, share), (right, _) in zip(
            profile.steps, [*profile.steps[1:], (WIDEST_RATIO, 1.0)], strict=True
        )
        if ratio < WIDEST_RATIO
    )


def _chosen_curves(report: Report) -> list[GapCurve]:
    """Return the curve of all families, then those of the families with the largest gaps."""
    own = [part.curve for part in report.families] if len(report.families) > 1 else []
    own.sort(key=lambda curve: (-curve.last, curve.family))
    return [report.every.curve, *own[: MOST_LINES - 1]]


def _svg(title: str, draw: Callable[[Axes], None]) -> str:
    from matplotlib.figure import Figure

    def drawn() -> Figure:
        figure = Figure(figsize=PANEL_INCHES, layout="constrained")
        axes = figure.subplots()
        axes.set_title(_label(title, 60))
        draw(axes)
        return figure

    return figure_bytes(drawn, "svg", OWN_STYLE).decode()


def _looks() -> Iterator[dict[str, Any]]:
    for number, colour in enumerate(cycle(SERIES)):
        yield {"color": colour, "linestyle": DASHES[number // len(SERIES) % len(DASHES)]}


def _label(text: str, longest: int = LONGEST_LABEL) -> str:
    return shorten(printable(text), longest)


def _draw_profiles(axes: Axes, chosen: Sequence[PerformanceProfile]) -> None:
    farthest = max(profile.steps[-1][0] for profile in chosen)
    edge = min(max(farthest**1.05, LEAST_RATIO), WIDEST_RATIO)
    lines = []
    for number, (profile, look) in enumerate(zip(chosen, _looks(), strict=False)):
        inside = _fewer([(ratio, share) for ratio, share in profile.steps if ratio <= edge])
        ratios = [1.0, *(ratio for ratio, _ in inside), edge]
        shares = [0.0, *(share for _, share in inside)]
        width = 2.6 if profile.method.role is Role.OURS else 1.6
        lines += axes.plot(
            ratios, [*shares, shares[-1]], drawstyle="steps-post", lw=width,
            zorder=3 + MOST_LINES - number, **look,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set(xlim=(1, edge), ylim=(0, 1.03), xlabel="value / best value", ylabel="instances")
    ticks = list(_ratio_ticks(edge))
    axes.set_xticks(ticks, [f"{ratio:g}" for ratio in ticks])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    _legend(axes, lines, [profile.method.name for profile in chosen])


def _fewer(steps: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `MOST_STEPS` of the steps, evenly, with the first and the last one."""
    if len(steps) <= MOST_STEPS:
        return list(steps)
    last = len(steps) - 1
    return [steps[place * last // (MOST_STEPS - 1)] for place in range(MOST_STEPS)]


def _ratio_ticks(edge: float) -> Iterator[float]:
    last = -1.0
    for ratio in RATIO_TICKS:
        place = math.log(ratio) / math.log(edge)
        if place <= 1 and place - last >= FEWEST_APART:
            last = place
            yield ratio


def _draw_gaps(axes: Axes, curves: Sequence[GapCurve]) -> None:
    first = min(curve.points[0][0] for curve in curves)
    last = max(curve.points[-1][0] for curve in curves)
    lines = []
    for number, (curve, look) in enumerate(zip(curves, _looks(), strict=False)):
        seconds = [first / 2, *(time for time, _ in curve.points), last * 1.2]
        gaps = [1.0, *(gap for _, gap in curve.points), curve.last]
        lines += axes.plot(
            seconds, gaps, drawstyle="steps-post", lw=1.4 if number else 2.6,
            zorder=3 + MOST_LINES - number, **look,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=LINEAR_BELOW)
    axes.set(xlim=(first / 2, last * 1.2), ylim=(0, 1.3), xlabel="seconds", ylabel="mean gap")
    axes.xaxis.set_major_formatter(lambda time, _: f"{time:g}")
    axes.minorticks_off()
    axes.set_yticks(SHARE_TICKS, [f"{100 * share:g} %" for share in SHARE_TICKS])
    _legend(axes, lines, [curve.family for curve in curves])


def _legend(axes: Axes, lines: Sequence[Any], names: Sequence[str]) -> None:
    # A name that begins with an underscore would be left out.
    labels = [f" {label}" if label.startswith("_") else label for label in map(_label, names)]
    axes.legend(lines, labels, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.13))
