"""Compare `optimize` with the published zero-bubble figures, at equal memory.

Points: the memory curve of 16 x 48 (device span, one chunk and V placement, 34 limits) and the rows
with schedules of the original planner (makespan and device span). Example::

    python benchmarks/published.py --time-limit 10 --only curve
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

from shipped import ROOT

import ppsolve
from ppsolve.models.instances import Instance
from ppsolve.solver.studies.generate.flags import PerDevice
from ppsolve.solver.studies.generate.instances import generate

DATA = ROOT / "tests" / "data"
TOLERANCE = 1e-6
"""Relative error of the published bubble rates, which are rounded."""


class Point(NamedTuple):
    """One published figure: an instance and the published device span or makespan."""

    instance: Instance
    published: float


def main() -> None:
    """Solve every point, print one line each and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--time-limit", type=float, default=10.0, help="seconds per point"
    )
    parser.add_argument("--only", default="", help="part of the names of points")
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    counts = {"better": 0, "equal": 0, "worse": 0, "proved": 0}
    print(
        "| point | value | bound | published | gap % | against published % | seconds | by |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for point in [*curve(), *rows()]:
        if options.only not in point.instance.name:
            continue
        result = ppsolve.optimize(
            point.instance, time_limit=options.time_limit, workers=options.workers
        )
        value, bound = float(result.value or 0), float(result.bound or 0)
        change = value / point.published - 1
        verdict = (
            "equal" if abs(change) < TOLERANCE else "worse" if change > 0 else "better"
        )
        counts[verdict] += 1
        counts["proved"] += result.status == "OPTIMAL"
        print(
            f"| {point.instance.name} | {value:.0f} | {bound:.0f} | {point.published:.0f} "
            f"| {100 * (value - bound) / value:.3f} | {100 * change:+.3f} "
            f"| {result.wall_seconds:.1f} | {result.best_by} |",
            flush=True,
        )
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


def curve() -> Iterator[Point]:
    """Yield the points of the published curve of device spans over memory."""
    data = read("zero_bubble_memory_curve.json")["curves"][0]
    share = data["released_at_backward_weight_end"]
    for limit, *rates in zip(
        data["memory_limit_over_p"],
        data["zb_bubble_rate"],
        data["zbv_bubble_rate"],
        strict=True,
    ):
        for chunks, rate in zip((1, 2), rates, strict=True):
            name = f"curve-{'v-' if chunks == 2 else ''}{limit}p"
            instance = pipeline(name, data, share, limit, chunks, "device_span")
            work = data["num_microbatches"] * (
                data["forward_us"]
                + data["backward_input_us"]
                + data["backward_weight_us"]
            )
            yield Point(instance, work / (1 - rate))


def rows() -> Iterator[Point]:
    """Yield the rows whose schedules were measured."""
    for number, row in enumerate(read("zero_bubble_published.json")["rows"]):
        share = row["memory"]["released_at_backward_weight_end"]
        for label, figures in row.get("measured_heuristic", {}).items():
            limit, planner = label.split("p/")
            for objective in ("makespan", "device_span"):
                size = f"{row['num_devices']}x{row['num_microbatches']}"
                name = f"row{number}-{size}-{limit}p-{planner}-{objective}"
                chunks = 2 if planner == "zbv" else 1
                instance = pipeline(name, row, share, float(limit), chunks, objective)
                yield Point(instance, figures[f"{objective}_us"])


def v_rows() -> Iterator[Instance]:
    """Yield V placements of the rows whose V schedules were not published, at 1p and 2p."""
    for number, row in enumerate(read("zero_bubble_published.json")["rows"]):
        if any(label.endswith("/zbv") for label in row.get("measured_heuristic", {})):
            continue
        share = row["memory"]["released_at_backward_weight_end"]
        for limit, objective in product((1, 2), ("makespan", "device_span")):
            size = f"{row['num_devices']}x{row['num_microbatches']}"
            name = f"row{number}-{size}-{limit}p-v-{objective}"
            yield pipeline(name, row, share, limit, 2, objective)


def pipeline(
    name: str,
    row: dict[str, Any],
    share: float,
    limit: float,
    chunks: int,
    objective: str,
) -> Instance:
    """Return the instance of a row; the two chunks of a V take half of the times each."""
    half = Decimal(1) / chunks
    activation = Fraction(1, chunks)
    return generate(
        name=name,
        devices=row["num_devices"],
        microbatches=row["num_microbatches"],
        placement="vshape" if chunks == 2 else "linear",
        forward=row["forward_us"] * half,
        backward_input=row["backward_input_us"] * half,
        backward_weight=row["backward_weight_us"] * half,
        p2p=Decimal(row["p2p_us"]),
        activation=Decimal(activation.numerator) / activation.denominator,
        share=Decimal(str(share)),
        capacity=PerDevice(Decimal(str(limit))),
        objective=objective,
    )


def read(name: str) -> Any:
    """Return the content of a file of published figures."""
    return json.loads((DATA / name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
