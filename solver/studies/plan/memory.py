"""Memory that configurations lack: on which device, how much, and what may help."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

from ppsolve.models.core.result import HeuristicEntry
from ppsolve.models.studies.plan.result import Configuration, MemoryShortage, Rule
from ppsolve.solver.studies.plan.building import PipelineBuilder
from ppsolve.solver.studies.plan.candidate import Candidate
from ppsolve.solver.studies.plan.split_problem import Boundaries


def exceeds_memory(entry: HeuristicEntry) -> bool:
    """Whether a heuristic made no schedule because of the memory."""
    return (entry.reason or "").startswith("memory")


def shortage_of(builder: PipelineBuilder, candidate: Candidate) -> MemoryShortage | None:
    """Return the memory that a candidate lacks which was ruled out or has no schedule.

    Parameters
    ----------
    builder : PipelineBuilder
        That of its profile.
    candidate : Candidate
        Any candidate.

    Returns
    -------
    MemoryShortage or None
        Of its split and one micro-batch; else of the allowed schedule that comes closest. None
        where it is not known to lack memory.
    """
    capacity = builder.capacity
    if capacity is None or candidate.step.reached is not None:
        return None
    c, schedule = candidate.configuration, None
    needed: Fraction | float | None
    if candidate.ruled_out is Rule.MEMORY and candidate.boundaries is None:
        device = builder.fullest_device(c.microbatch_size, builder.stage_to_device(c))
        needed = candidate.needed
    elif candidate.ruled_out is Rule.MEMORY:
        held = _held(builder, c, candidate.boundaries or ())
        device, needed = max(enumerate(held), key=lambda pair: pair[1])
    else:
        peaks = [(e.peak_memory, e.name) for e in candidate.step.failures if exceeds_memory(e)]
        known = [(max(peak.values()), list(peak.values()), name) for peak, name in peaks if peak]
        if not known:
            return None
        needed, values, schedule = min(known)
        device = values.index(needed)
    return MemoryShortage(
        device=device,
        needed=None if needed is None else float(needed),
        available=float(builder.request.cluster.memory or 0),
        schedule=schedule,
        may_help=tuple(_remedies(builder, c, float((needed or capacity) / capacity), schedule)),
    )


def _held(builder: PipelineBuilder, c: Configuration, boundaries: Boundaries) -> list[Fraction]:
    # Bytes that each device needs for its states and one micro-batch.
    held, layers = [Fraction(0)] * c.pipeline_depth, builder.layers(c.microbatch_size).held
    for device, (first, last) in zip(builder.stage_to_device(c), pairwise(boundaries), strict=True):
        held[device] += sum(layers[first:last])
    return held


def _remedies(
    builder: PipelineBuilder, c: Configuration, excess: float, schedule: str | None
) -> Iterator[str]:
    # Each leaves room for the states and one micro-batch, as far as sums over devices can tell.
    model, cluster = builder.request.model, builder.request.cluster
    size, depth, lack = c.microbatch_size, c.pipeline_depth, builder.lack_of_memory
    if schedule is not None:
        yield "a schedule with fewer micro-batches in flight"
    sizes = [s for s in model.microbatch_sizes if s < size and lack(s, depth) is None]
    if sizes:
        yield f"micro-batch size {max(sizes)}"
    most = min(cluster.devices, model.num_layers) if schedule is None else 0
    deeper = (depth << power for power in range(1, most.bit_length()))
    fitting = [d for d in deeper if d <= most and lack(size, d) is None]
    if fitting:
        yield f"a pipeline of {fitting[0]} devices"
    if model.recompute != "full" and lack(size, depth, states_only=True) is None:
        yield "recomputation"
    share = 2 ** max(1, math.ceil(math.log2(excess)))
    if cluster.devices_per_node % share == 0 and depth * share <= cluster.devices:
        yield f"tensor parallelism {c.tensor_parallel * share}"
