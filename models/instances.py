"""The kinds of instance, by name: loading, validating and lowering any of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ppsolve.models.core.problem import Problem
from ppsolve.models.documents.base import describe, did_you_mean
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.models.graph import GraphInstance, lower_graph
from ppsolve.models.kfac.cycle import lower_cycle
from ppsolve.models.kfac.instance import KfacInstance
from ppsolve.models.overlap.instance import OverlapInstance
from ppsolve.models.overlap.lowering import lower_overlap
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.lowering import lower_pipeline

Instance = PipelineInstance | GraphInstance | KfacInstance | OverlapInstance
"""Any instance; told apart by its ``kind``."""

MAX_TOTAL_TICKS = 2.0**58
"""Sums of times stay below this, so that no path or horizon leaves int64."""

KINDS: dict[str, type[Instance]] = {
    "pipeline": PipelineInstance,
    "graph": GraphInstance,
    "kfac": KfacInstance,
    "overlap": OverlapInstance,
}

NO_INSTANCES = {
    "plan": "this is a request for a plan; `ppsolve plan` reads it",
    "plan-result": "this is a plan; `ppsolve plan --instance-out FILE` writes its pipeline",
    "goodput": "these are parameters of a goodput model; `ppsolve goodput` reads them",
}
"""What other documents say of themselves where an instance is expected."""

AnyInstance = TypeVar("AnyInstance", bound=Instance)


def parse_instance(data: Any, source: str | None = None) -> Instance:
    """Validate parsed JSON as the instance kind that its ``kind`` names.

    Raises
    ------
    InputError
        Names `source`, the field and what would be right.
    """
    if not isinstance(data, dict):
        raise InputError(f"expected an object, got {describe(data)}", source=source)
    if "kind" not in data:
        if "schedule" in data or {"instance", "status"} <= data.keys():
            raise InputError("this is a result, not an instance", source=source)
        raise InputError(
            f"this field is required (one of {', '.join(KINDS)})", source=source, field="kind"
        )
    kind = data["kind"]
    if isinstance(kind, str) and kind in NO_INSTANCES:
        raise InputError(NO_INSTANCES[kind], source=source)
    if not isinstance(kind, str) or kind not in KINDS:
        word = kind[:40] if isinstance(kind, str) else ""
        shown = f'"{word}"' if isinstance(kind, str) else describe(kind)
        raise InputError(
            f"unknown kind {shown}" + did_you_mean(word, KINDS), source=source, field="kind"
        )
    version = data.get("schema", 1)
    if version != 1 or isinstance(version, bool):
        raise InputError(
            f"expected 1 (the only version), got {describe(version)}",
            source=source,
            field="schema",
        )
    return KINDS[kind].parse(data, source)


def load_instance(path: str | Path) -> Instance:
    """Read an instance file (``-``: standard input).

    Raises
    ------
    InputError
        The file cannot be read, is not JSON, or is not a valid instance.
    """
    return parse_instance(read_json(path), source_name(path))


def lower(instance: Instance, *, round_up: bool = False) -> Problem:
    """Lower an instance to the problem that solvers work on.

    A K-FAC instance becomes its refresh cycle with a free pipeline; see
    `ppsolve.solver.optimize.lowering` for pinned ones.

    Parameters
    ----------
    instance : Instance
        A validated instance.
    round_up : bool
        Round times up where they have no common tick within the limit.

    Raises
    ------
    InputError
        The times have no common tick and `round_up` is false, or are too long in all. Its
        source is the instance's name.
    """
    return lower_by(lambda given: _lowered(given, round_up=round_up), instance)


def lower_by(rule: Callable[[AnyInstance], Problem], instance: AnyInstance) -> Problem:
    """Lower an instance by a rule of its own; errors and limits as for `lower`."""
    try:
        problem = rule(instance)
        _refuse_long_times(problem)
    except InputError as error:
        raise error.located(instance.name) from None
    return problem


def _lowered(instance: Instance, *, round_up: bool) -> Problem:
    if isinstance(instance, PipelineInstance):
        return lower_pipeline(instance, round_up=round_up)
    if isinstance(instance, KfacInstance):
        return lower_cycle(instance, round_up=round_up)
    if isinstance(instance, OverlapInstance):
        return lower_overlap(instance, round_up=round_up)
    return lower_graph(instance, round_up=round_up)


def _refuse_long_times(problem: Problem) -> None:
    total = sum(float(times.sum(dtype=np.float64)) for times in (problem.duration, problem.lag))
    if total > MAX_TOTAL_TICKS:
        raise InputError(
            f"all times together are {total:.1E} ticks, expected at most {MAX_TOTAL_TICKS:.1E}; "
            "give fewer digits",
            field="times",
        )
