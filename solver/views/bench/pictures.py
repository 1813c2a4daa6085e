"""Pictures of a report as SVG: performance profiles, and the mean gap over time."""

from __future__ import annotations

from base64 import b64encode
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from ppsolve.models.documents.printable import printable
from ppsolve.solver.studies.bench.report.cases import Role
from ppsolve.solver.studies.bench.report.report import FamilyFigures, Report
from ppsolve.solver.studies.bench.report.rows import GapCurve, PerformanceProfile
from ppsolve.solver.views.bench.sections import ANYTIME, PROFILES, with_profiles
from ppsolve.solver.views.colours import SERIES
from ppsolve.solver.views.line_chart import (
    MARKERS,
    STYLE,
    add_legend,
    figure_bytes,
    panel_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PictureLimits:
    """How much pictures of a report show."""

    lines: int = (
        9  # the colours once plain, half of them dashed; more cannot be told apart
    )
    label: int = 28  # letters of a line
    points: int = 200  # of a line, beside its steps
    ratio: float = 2.0  # beyond, a method is no alternative
    least_ratio: float = 1.02  # of the axis, even where all methods are equal
    shares: tuple[float, ...] = (0.0, 0.001, 0.01, 0.1, 1.0)
    linear_below: float = 0.001  # share: 0 has no place on a logarithmic axis


LIMITS = PictureLimits()
Line = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Picture:
    """A picture as SVG text, and what it shows in words."""

    name: str
    title: str
    svg: str

    @property
    def address(self) -> str:
        """The picture as the address of an image of a page."""
        return "data:image/svg+xml;base64," + b64encode(self.svg.encode()).decode()


def draw_pictures(report: Report) -> Iterator[Picture]:
    """Yield the pictures of a report; equal reports give equal pictures."""
    yield from _profiles(PROFILES, report.every, "Performance profiles, all families")
    curves = _chosen_curves(report)
    title, count = "Mean gap over time", len(report.families)
    title += (
        f", {len(curves) - 1} of {count} families" if 1 < len(curves) <= count else ""
    )
    yield Picture(ANYTIME, title, _svg(title, lambda axes: _draw_gaps(axes, curves)))
    if len(report.families) > 1:
        for family in report.families:
            name = family.total.family
            yield from _profiles(
                f"{PROFILES}-{name}", family, f"Performance profiles, {name}"
            )


def _profiles(name: str, family: FamilyFigures, title: str) -> Iterator[Picture]:
    if profiles := with_profiles(family):
        yield Picture(
            name, title, _svg(title, lambda axes: _draw_profiles(axes, profiles))
        )


def _chosen_curves(report: Report) -> list[GapCurve]:
    curves = (
        [family.curve for family in report.families] if len(report.families) > 1 else []
    )
    curves.sort(key=lambda curve: (-curve.last, curve.family))
    return [report.every.curve, *curves[: LIMITS.lines - 1]]


def _svg(title: str, draw: Callable[[Axes], None]) -> str:
    def drawn() -> Figure:
        figure, axes = panel_figure(_label(title, 60))
        draw(axes)
        return figure

    return figure_bytes(drawn, "svg", STYLE | {"text.parse_math": False}).decode()


def _label(text: str, width: int = LIMITS.label) -> str:
    # A name that begins with an underscore would be left out of the legend.
    return "\n".join(wrap(" " * text.startswith("_") + printable(text), width))


def _draw_steps(axes: Axes, lines: Mapping[str, Line], bold: str | None) -> None:
    """Draw lines of steps by name, the first ones on top, each with marks at places of its own."""
    looks = product(("-", "--", ":"), zip(SERIES, MARKERS, strict=True))
    for number, ((name, points), look) in enumerate(
        zip(lines.items(), looks, strict=False)
    ):
        # Marks stand at points of a line, which needs some between its steps.
        between = np.geomspace(points[0][0], points[-1][0], LIMITS.points).tolist()
        xs = sorted({*between, *(x for x, _ in points)})
        ys = [points[bisect_right(points, x, key=itemgetter(0)) - 1][1] for x in xs]
        axes.step(
            xs, ys, where="post", label=_label(name), lw=2.6 if name == bold else 1.5,
            zorder=3 + LIMITS.lines - number, linestyle=look[0], color=look[1][0],
            marker=look[1][1], markersize=5, markevery=(0.04 * (number + 1), 0.4),
        )  # fmt: skip
    add_legend(axes)


def _draw_profiles(axes: Axes, profiles: Sequence[PerformanceProfile]) -> None:
    alike: dict[Line, list[str]] = {}
    for profile in profiles:
        alike.setdefault(profile.steps, []).append(profile.method.name)
    groups = [(" = ".join(names), steps) for steps, names in alike.items()][
        : LIMITS.lines
    ]
    farthest = max(steps[-1][0] for _, steps in groups)
    edge = min(max(farthest**1.05, LIMITS.least_ratio), LIMITS.ratio)
    end = max(farthest, edge)
    lines = {name: [(1.0, 0.0), *steps, (end, steps[-1][1])] for name, steps in groups}
    ours = groups[0][0] if profiles[0].method.role is Role.OURS else None
    _draw_steps(axes, lines, ours)
    axes.set(
        xlim=(1, edge), ylim=(0, 1.03), xlabel="value / best value", ylabel="instances"
    )
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")


def _draw_gaps(axes: Axes, curves: Sequence[GapCurve]) -> None:
    first = min(curve.points[0][0] for curve in curves) / 2
    last = max(curve.points[-1][0] for curve in curves) * 1.2
    lines = {c.family: [(first, 1.0), *c.points, (last, c.last)] for c in curves}
    _draw_steps(axes, lines, curves[0].family)
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=LIMITS.linear_below)
    axes.set(xlim=(first, last), ylim=(0, 1.3), xlabel="seconds", ylabel="mean gap")
    axes.xaxis.set_major_formatter(lambda time, _: f"{time:g}")
    axes.minorticks_off()
    axes.set_yticks(LIMITS.shares, [f"{100 * share:g} %" for share in LIMITS.shares])
