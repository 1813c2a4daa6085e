"""Draw makespan against the cap on live bytes: ``python benchmarks/plot_live_bytes.py -o FILE``.

Every corner of the curve is solved for: the least makespan under a cap, then the least peak of
live bytes at that makespan. The next cap lies just below that peak, until no schedule is left.
Points that are not proved within the time limit are drawn with their bound.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

from shipped import INSTANCES, ROOT

import ppsolve
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.result import OverlapResult
from ppsolve.solver.api.kinds import load_instance

SHIPPED = INSTANCES / "overlap/fsdp-step-6l-free.json"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 76, 24, 48, 56
LINE, FAINT, TEXT = "#1f6feb", "#d0d7de", "#24292f"


@dataclass(frozen=True)
class Point:
    """The best that was found under a cap.

    Parameters
    ----------
    cap : float or None
        Cap on live bytes, None for no cap.
    peak, least_peak : float
        Peak of live bytes, and its lower bound at this makespan.
    makespan, bound : float
        Makespan and its lower bound under the cap.
    """

    cap: float | None
    peak: float
    least_peak: float
    makespan: float
    bound: float

    @property
    def is_proved(self) -> bool:
        """Whether neither the makespan nor then the peak can be lower."""
        return self.makespan == self.bound and self.peak == self.least_peak

    def __str__(self) -> str:
        """Return the point as a line of text."""
        cap = "no cap" if self.cap is None else f"cap {self.cap:g}"
        proof = (
            "proved"
            if self.is_proved
            else f"bounds {self.least_peak:g}, {self.bound:g}"
        )
        return f"{cap:>10}: peak {self.peak:g}, makespan {self.makespan:g} ({proof})"


def curve(
    instance: OverlapInstance, time_limit: float
) -> Iterator[Point | OverlapResult]:
    """Yield the corners from no cap downwards, then the result that no schedule is left."""
    step = _common_step(instance)
    cap: float | None = None
    while True:
        asked = {"max_live_bytes": cap, "objective": "makespan_then_bytes"}
        limited = OverlapInstance.parse(
            {
                **instance.model_dump(mode="json", by_alias=True, exclude_none=True),
                **asked,
            }
        )
        result = ppsolve.optimize(limited, time_limit=time_limit)
        assert isinstance(result, OverlapResult)
        if result.makespan is None or result.peak_live_bytes is None:
            yield result
            return
        peak, least = result.peak_live_bytes, result.least_peak_bytes
        bound = result.bound if result.bound is not None else 0
        yield Point(
            cap, peak, least if least is not None else 0, result.makespan, bound
        )
        cap = peak - step


def _common_step(instance: OverlapInstance) -> float:
    """Return the common divisor of all sums of outputs."""
    sizes = [Fraction(node.bytes) for node in instance.nodes if node.bytes]
    scale = math.lcm(*(size.denominator for size in sizes))
    return math.gcd(*(int(size * scale) for size in sizes)) / scale


def picture(points: list[Point], unit: str, title: str, least: str) -> str:
    """Return the curve as SVG."""
    right = points[0].peak * 1.06
    left = points[-1].peak - 0.06 * right
    low = min(point.bound for point in points)
    high = max(point.makespan for point in points)
    margin = 0.08 * (high - low) or 1
    low, high = low - margin, high + margin

    def across(amount: float) -> float:
        return LEFT + (amount - left) / (right - left) * (WIDTH - LEFT - RIGHT)

    def down(time: float) -> float:
        return TOP + (high - time) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [*_frame(title, unit, least)]
    for amount in _round_numbers(left, right):
        parts.append(_line(across(amount), TOP, across(amount), HEIGHT - BOTTOM, FAINT))
        parts.append(
            _text(across(amount), HEIGHT - BOTTOM + 18, f"{amount:g}", "middle")
        )
    for time in _round_numbers(low, high):
        parts.append(_line(LEFT, down(time), WIDTH - RIGHT, down(time), FAINT))
        parts.append(_text(LEFT - 8, down(time) + 4, f"{time:,g}", "end"))
    path = f"M{across(right):.1f} {down(points[0].makespan):.1f}"
    for point, following in pairwise([*points, None]):
        assert point is not None
        path += f"H{across(point.peak):.1f}"
        path += f"V{down(following.makespan):.1f}" if following else ""
    parts.append(f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="2"/>')
    for point in points:
        parts += _mark(
            across(point.peak), down(point.makespan), down(point.bound), point
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _frame(title: str, unit: str, least: str) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">'
    )
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    yield _text(LEFT, 22, title, "start", weight="bold")
    yield _text(LEFT, 38, least, "start")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "cap on live bytes", "middle")
    yield (
        f'<text x="18" y="{(TOP + HEIGHT - BOTTOM) / 2}" fill="{TEXT}" text-anchor="middle" '
        f'transform="rotate(-90 18 {(TOP + HEIGHT - BOTTOM) / 2})">makespan ({unit})</text>'
    )


def _mark(x: float, y: float, bound: float, point: Point) -> Iterator[str]:
    fill = LINE if point.is_proved else "#ffffff"
    if point.makespan != point.bound:
        yield _line(x, y, x, bound, LINE)
        yield _line(x - 5, bound, x + 5, bound, LINE)
    yield (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{LINE}">'
        f"<title>{escape(str(point).strip())}</title></circle>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str, weight: str = "normal") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{TEXT}" font-weight="{weight}">{escape(text)}</text>'


def _round_numbers(low: float, high: float) -> list[float]:
    rough = (high - low) / 7
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def main() -> None:
    """Solve for the curve, print its corners, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("instance", nargs="?", type=Path, default=SHIPPED)
    parser.add_argument(
        "-t", "--time-limit", type=float, default=60, help="seconds per point"
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=ROOT / "docs/live_bytes.svg"
    )
    given = parser.parse_args()
    instance = load_instance(given.instance)
    assert isinstance(instance, OverlapInstance)
    points: list[Point] = []
    least = ""
    for found in curve(instance, given.time_limit):
        if isinstance(found, Point):
            points.append(found)
            print(found, flush=True)
        else:
            status = "none (proved)" if found.status == "INFEASIBLE" else "none found"
            least = "schedules" + (
                f" below a cap of {points[-1].peak:g}" if points else ""
            )
            least += f": {status}"
            print(least)
    if not points:
        raise SystemExit("no schedule was found, so there is nothing to draw")
    title = f"{instance.name}: makespan against the cap on live bytes"
    given.output.write_text(
        picture(points, instance.time_unit, title, least), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
