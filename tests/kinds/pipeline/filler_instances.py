"""Small pipelines with fillers, and what tests ask of them."""

from __future__ import annotations

from typing import Any

from ppsolve.models.core.problem import Problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.solver.api.api import simulate


def instance(*fillers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return two devices, two micro-batches, forwards of 1 and backwards of 2."""
    return {
        "kind": "pipeline",
        "num_devices": 2,
        "num_microbatches": 2,
        "times": {"forward": 1, "backward": 2},
        "fillers": [
            {"name": f"x{number}", "device": 0, "pieces": [1], **filler}
            for number, filler in enumerate(fillers)
        ],
        **fields,
    }


def lower(data: dict[str, Any]) -> Problem:
    return lower_pipeline(PipelineInstance.parse(data))


def before(problem: Problem, name: str) -> set[str]:
    names = problem.op_names(range(problem.num_ops))
    return set(problem.op_names(problem.before[problem.after == names.index(name)]))


def rows(problem: Problem) -> list[list[list[str]]]:
    return [[problem.op_names(row) for row in family] for family in problem.families]


def greedy(data: dict[str, Any], name: str = "1f1b") -> tuple[Any, list[str]]:
    """Return the entry of a heuristic and the order of device 0."""
    found = simulate(PipelineInstance.parse(data), name)
    return found, [] if found.schedule is None else found.schedule.orders()[0]
