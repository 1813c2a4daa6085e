"""Splits of layers beside those of SAPP: ``python benchmarks/split_layers.py [--seconds S]``.

For every memory limit of `tests/data/recompute`: the step that SAPP's toolkit simulates for its
split, the step of the best split found under the same order, the best split and order together.
Bounds say how much shorter than its step either can be at most.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import ppsolve
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.pipeline.layers.model import LayerModel
from ppsolve.solver.kinds.pipeline.layers.ordered import MODEL_LIMITS, OrderedSplits
from ppsolve.solver.kinds.pipeline.published import PUBLISHED

ORDERS = {
    "1f1b": "1f1b",
    "interleaved": "interleaved-1f1b",
    "interleaved_less_memory": "interleaved-less-memory",
}
"""The toolkit's names of orders, and ours."""

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "data" / "recompute"


def sapp(name: str) -> dict[str, Any]:
    """Return a file of SAPP's answers, sequence slices as micro-batches of their own."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    if found.get("sequence_slices", 1) > 1:
        _slice(found)
    return found


def _slice(case: dict[str, Any]) -> None:
    """Cut micro-batches into slices along the sequence, as the toolkit does.

    Its layers keep keys and values (`tensor` MiB each) of all slices. Slices of a micro-batch do
    not wait for each other but by the order, so that they are micro-batches here.
    """
    model, layers, count = case["model"], case["layers"], case["sequence_slices"]
    tokens, ranks = model["batch"] * model["sequence"] / 2**20, model["tensor_parallel"]
    tensor = 2 * tokens * model["heads"] * model["head_dim"] / ranks
    hidden, logits = (
        2 * tokens * model["hidden"],
        4 * tokens * model["vocabulary"] / ranks,
    )
    head, body, tail = (layers[part] for part in ("head", "body", "tail"))
    body["parameter"] += 4 * tensor
    head["parameter"] -= (1 - 1 / count) * (2 * hidden / ranks + hidden)
    tail["parameter"] -= (1 - 1 / count) * 2 * logits
    for kind in body["types"].values():
        kind["activation"] = (kind["activation"] - 2 * tensor) / count + 2 * tensor
        kind["backward"] /= count
    for part in (head, body, tail):
        part["forward"] /= count
    for part in (head, tail):
        part["backward"] /= count
    case["num_microbatches"] *= count


def of_sapp(case: dict[str, Any], limit: float) -> PipelineInstance:
    """Return the instance of a memory limit."""
    layers, types = case["layers"], case["layers"]["body"]["types"]
    base = types["none"]["backward"]
    ends = {
        end: {
            "forward": layers[part]["forward"],
            "backward": layers[part]["backward"],
            "static": layers[part]["parameter"],
        }
        for end, part in (("first", "head"), ("last", "tail"))
    }
    body = {
        "count": layers["body"]["count"],
        "forward": layers["body"]["forward"],
        "backward": base,
        "activation": types["none"]["activation"],
        "static": layers["body"]["parameter"],
    }
    recompute = [
        {
            "name": name,
            "time": round(kind["backward"] - base, 6),
            "held": kind["activation"],
        }
        for name, kind in types.items()
        if name != "none"
    ]
    chunks = case["chunks"]
    return PipelineInstance.parse(
        {
            "name": case["name"],
            "num_devices": case["num_stages"],
            "num_microbatches": case["num_microbatches"],
            "placement": "interleaved" if chunks > 1 else "linear",
            "layers": {**ends, "body": body, "recompute": recompute},
            "memory": {"capacity": limit},
            **({"stages_per_device": chunks} if chunks > 1 else {}),
        }
    )


def under_order(case: dict[str, Any], instance: PipelineInstance) -> OrderedSplits:
    """Return the splits of an instance under the order of the toolkit."""
    name = ORDERS[case["schedule"]]
    return OrderedSplits.of_heuristic(
        instance, next(each for each in PUBLISHED if each.name == name)
    )


def main() -> None:
    """Print a row for every limit, then mean gains."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="for each of both searches"
    )
    parser.add_argument("--only", default="", help="part of the names of files")
    options = parser.parse_args()
    print(
        "| file | limit | SAPP | its order | gain % | at most % | any order | gain % | at most % |"
    )
    print("| --- " * 9 + "|")
    gains: list[tuple[float, float]] = []
    for path in sorted(FOLDER.glob("sapp_*.json")):
        if options.only in path.stem:
            case = sapp(path.stem)
            gains += [
                pair for run in case["runs"] for pair in row(case, run, options.seconds)
            ]
    for number, words in enumerate(("its order", "any order")):
        mean = statistics.mean(pair[number] for pair in gains)
        least = min(pair[number] for pair in gains)
        print(f"{words}: {mean:.2f} % shorter in the mean, {least:.2f} % at least")


def row(
    case: dict[str, Any], run: dict[str, Any], seconds: float
) -> list[tuple[float, float]]:
    """Print the row of a limit; return both gains in percent, none without a step of SAPP's."""
    instance = of_sapp(case, run["memory_limit"])
    splits = under_order(case, instance)
    found = splits.search(Clock(seconds), 0)
    step = step_of(run)
    ordered: float | None = None
    scale = splits.scale
    if found.counts is not None:
        ordered = float(scale.time(splits.schedule(found.counts).makespan))
    free = ppsolve.optimize(instance, time_limit=seconds)
    values = [float(each) for each in (free.value, ordered) if each is not None]
    value = min(values, default=None)
    times = [ordered, scale.time(found.bound), value, free.bound]
    gains = [
        f"{100 * (1 - float(each or 'inf') / step):.2f}" if step else ""
        for each in times
    ]
    shown: Any = "infeasible" if found.is_infeasible else ordered
    if not step and not found.is_infeasible and has_no_room(case, instance, splits):
        shown = f"infeasible in its model; {ordered}"
    last = "infeasible" if free.status is ppsolve.Status.INFEASIBLE else value
    cells = [
        case["name"],
        run["memory_limit"],
        step,
        shown,
        *gains[:2],
        last,
        *gains[2:],
    ]
    print(f"| {' | '.join(str(cell) for cell in cells)} |", flush=True)
    return [(float(gains[0]), float(gains[2]))] if step else []


def has_no_room(
    case: dict[str, Any], instance: PipelineInstance, splits: OrderedSplits
) -> bool:
    """Whether no split fits where, as its model says, all slices but one are held beside."""
    held = [rows + case["sequence_slices"] - 1 for rows in splits.in_flight]
    return (
        LayerModel(instance, splits.scale, held)
        .solve(MODEL_LIMITS, Clock())
        .is_infeasible
    )


def step_of(run: dict[str, Any]) -> float | None:
    """Return the step that the toolkit simulates, of all slices, None without a split."""
    simulated: dict[str, float] = run.get("simulated", {})
    return simulated.get("step_time_all_slices", simulated.get("step_time"))


if __name__ == "__main__":
    main()
