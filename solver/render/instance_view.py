"""An instance in short: what there is to schedule."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.problem import Problem
from ppsolve.models.instances import Instance
from ppsolve.models.kfac.instance import KfacInstance
from ppsolve.models.overlap.instance import OverlapInstance
from ppsolve.models.pipeline.instance import ExplicitPlacement, PipelineInstance
from ppsolve.solver.render.figures import figure, figures
from ppsolve.solver.render.kfac.description import HINT, cycle_devices, cycle_facts
from ppsolve.solver.render.overlap.view import describe_overlap
from ppsolve.solver.render.tables import facts, indented


def describe_problem(instance: Instance, problem: Problem) -> RenderableType:
    """Return what an instance consists of, and what can be done with it."""
    if isinstance(instance, OverlapInstance):
        return describe_overlap(instance)
    parts: list[RenderableType] = [Text(f"{instance.name}: a {instance.kind} instance", "bold")]
    rows = list(_pipeline(instance)) if isinstance(instance, PipelineInstance) else []
    if isinstance(instance, KfacInstance) and instance.pipeline is not None:
        rows = [*_pipeline(instance.pipeline), *cycle_facts(instance)]
    parts.append(facts([*rows, *_sizes(problem)]))
    if isinstance(instance, KfacInstance):
        parts += [Text(), indented(cycle_devices(problem)), Text()]
    return Group(*parts, HINT)


def _pipeline(instance: PipelineInstance) -> Iterator[tuple[str, str]]:
    placement = instance.placement
    yield "devices", str(instance.num_devices)
    yield "stages", str(instance.num_stages)
    yield "micro-batches", str(instance.num_microbatches)
    explicit = isinstance(placement, ExplicitPlacement)
    yield "placement", "explicit" if explicit else str(placement)
    yield "backward", "split (I + W)" if instance.times.is_split else "fused (B)"
    yield "transfers", instance.p2p.mode


def _sizes(problem: Problem) -> Iterator[tuple[str, str]]:
    unit = problem.scale.unit
    yield "objective", problem.objective.value.replace("_", " ")
    yield "ops", figure(problem.num_ops)
    yield "precedences", figure(len(problem.before))
    work = [
        int(problem.duration[problem.ops_by_resource[resource]].sum())
        for resource in problem.span_resources.tolist()
    ]
    if work:
        ends = figures(*(problem.scale.time(ticks) for ticks in sorted({min(work), max(work)})))
        yield "work per device", f"{' to '.join(ends)} {unit}"
    if problem.num_ops:
        longest = problem.scale.time(int(np.max(problem.duration)))
        yield "longest op", f"{figure(longest)} {unit}"
    for pool in problem.pools[:1]:
        yield f"memory, {pool.name}", f"capacity {figure(float(pool.capacity))}"
