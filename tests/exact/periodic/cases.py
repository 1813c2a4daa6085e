"""Pipelines of alike micro-batches, and a schedule of each."""

from __future__ import annotations

from typing import Any

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.exact.periodic.steady_state import Rows, first_rows, rows_of
from ppsolve.solver.heuristics.generic import list_tail

TIMES = {"forward": 3, "backward_input": 4, "backward_weight": 2}


def pipeline(devices: int, microbatches: int, **fields: Any) -> Problem:
    """Return a pipeline with equal stages; a capacity is in activations of one stage."""
    capacity, one = fields.pop("capacity", None), fields.pop("activation", 1)
    memory = None if capacity is None else {"capacity": capacity * one, "activation": one}
    return lower(
        PipelineInstance(
            num_devices=devices,
            num_microbatches=microbatches,
            **{"times": TIMES, "memory": memory} | fields,
        )
    )


def short_schedule(rows: Rows, count: int) -> Schedule:
    """Return a list schedule of the first micro-batches."""
    return list_tail(first_rows(rows, count)).normalised()


def one_device(microbatches: int, capacity: Any = None) -> Rows:
    """Return a device that runs forwards (3) and backwards (6 in one piece)."""
    times = {"forward": 3, "backward": 6}
    return rows_of(pipeline(1, microbatches, times=times, capacity=capacity))
