"""Pictures of a report as SVG: performance profiles, and the mean gap over time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from ppsolve.models.documents.printable import printable
from ppsolve.solver.studies.bench.report.cases import Role
from ppsolve.solver.studies.bench.report.report import FamilyFigures, Report
from ppsolve.solver.studies.bench.report.rows import GapCurve, PerformanceProfile
from ppsolve.solver.views.bench.sections import ANYTIME, PROFILES
from ppsolve.solver.views.colours import SERIES
from ppsolve.solver.views.figures import shorten
from ppsolve.solver.views.line_chart import PANEL_INCHES, STYLE, figure_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#0a0b0c"  # texts and axes in a file; within a page the page's own, dark or light

OWN_STYLE = {
    **STYLE,
    "text.parse_math": False,
    "grid.color": "#80808050",
    "savefig.transparent": True,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color", "axes.titlecolor"), INK),
}


@dataclass(frozen=True)
class PictureLimits:
    """How much pictures of a report show."""

    lines: int = 9  # the colours once plain, half of them dashed; more cannot be told apart
    label: int = 28  # letters
    ratio: float = 4.0  # beyond, a method is no alternative; shares at the edge stay exact
    least_ratio: float = 1.02  # of the axis, even where all methods are equal
    steps: int = 250  # of one line: about as many as the picture has points
    ticks_apart: float = 0.06  # of the axis of ratios; nearer ones are left out
    ratios: tuple[float, ...] = (1.0, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 4.0)
    shares: tuple[float, ...] = (0.0, 0.001, 0.01, 0.1, 1.0)
    linear_below: float = 0.001  # share: 0 has no place on a logarithmic axis


LIMITS = PictureLimits()


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
    order = list(Role)
    known = [profile for profile in part.profiles if profile.steps]
    known.sort(key=lambda one: (order.index(one.method.role), -_area(one), one.method.name))
    return known[: LIMITS.lines]


def _area(profile: PerformanceProfile) -> float:
    return sum(
        share * (min(right, LIMITS.ratio) - ratio)
        for (ratio, share), (right, _) in zip(
            profile.steps, [*profile.steps[1:], (LIMITS.ratio, 1.0)], strict=True
        )
        if ratio < LIMITS.ratio
    )


def _chosen_curves(report: Report) -> list[GapCurve]:
    own = [part.curve for part in report.families] if len(report.families) > 1 else []
    own.sort(key=lambda curve: (-curve.last, curve.family))
    return [report.every.curve, *own[: LIMITS.lines - 1]]


def _svg(title: str, draw: Callable[[Axes], None]) -> str:
    from matplotlib.figure import Figure

    def drawn() -> Figure:
        figure = Figure(figsize=PANEL_INCHES, layout="constrained")
        axes = figure.subplots()
        axes.set_title(_label(title, 60))
        draw(axes)
        return figure

    return figure_bytes(drawn, "svg", OWN_STYLE).decode()


def _label(text: str, longest: int = LIMITS.label) -> str:
    return shorten(printable(text), longest)


def _draw_steps(
    axes: Axes, lines: Mapping[str, Sequence[tuple[float, float]]], bold: Collection[str]
) -> None:
    """Draw lines of steps by name over a logarithmic axis, the first ones on top."""
    looks = product(("-", "--", ":"), SERIES)
    for number, ((name, points), look) in enumerate(zip(lines.items(), looks, strict=False)):
        # A name that begins with an underscore would be left out of the legend.
        label = f" {_label(name)}" if name.startswith("_") else _label(name)
        axes.plot(
            [x for x, _ in points], [y for _, y in points], drawstyle="steps-post", label=label,
            lw=2.6 if name in bold else 1.5, zorder=3 + LIMITS.lines - number,
            linestyle=look[0], color=look[1],
        )  # fmt: skip
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.13))


def _draw_profiles(axes: Axes, chosen: Sequence[PerformanceProfile]) -> None:
    farthest = max(profile.steps[-1][0] for profile in chosen)
    edge = min(max(farthest**1.05, LIMITS.least_ratio), LIMITS.ratio)
    lines = {}
    for profile in chosen:
        inside = _fewer([(ratio, share) for ratio, share in profile.steps if ratio <= edge])
        last = inside[-1][1] if inside else 0.0
        lines[profile.method.name] = [(1.0, 0.0), *inside, (edge, last)]
    _draw_steps(axes, lines, {p.method.name for p in chosen if p.method.role is Role.OURS})
    axes.set(xlim=(1, edge), ylim=(0, 1.03), xlabel="value / best value", ylabel="instances")
    ticks = list(_ratio_ticks(edge))
    axes.set_xticks(ticks, [f"{ratio:g}" for ratio in ticks])
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")


def _fewer(steps: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(steps) <= LIMITS.steps:
        return list(steps)
    last = len(steps) - 1
    return [steps[place * last // (LIMITS.steps - 1)] for place in range(LIMITS.steps)]


def _ratio_ticks(edge: float) -> Iterator[float]:
    last = -1.0
    for ratio in LIMITS.ratios:
        place = math.log(ratio) / math.log(edge)
        if place <= 1 and place - last >= LIMITS.ticks_apart:
            last = place
            yield ratio


def _draw_gaps(axes: Axes, curves: Sequence[GapCurve]) -> None:
    first = min(curve.points[0][0] for curve in curves) / 2
    last = max(curve.points[-1][0] for curve in curves) * 1.2
    lines = {c.family: [(first, 1.0), *c.points, (last, c.last)] for c in curves}
    _draw_steps(axes, lines, {curves[0].family})
    axes.set_yscale("symlog", linthresh=LIMITS.linear_below)
    axes.set(xlim=(first, last), ylim=(0, 1.3), xlabel="seconds", ylabel="mean gap")
    axes.xaxis.set_major_formatter(lambda time, _: f"{time:g}")
    axes.minorticks_off()
    axes.set_yticks(LIMITS.shares, [f"{100 * share:g} %" for share in LIMITS.shares])
