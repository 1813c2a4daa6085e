"""Write pipelines with collectives, byte for byte: ``python benchmarks/make_overlap_pipelines.py``.

A stage of transformer blocks takes some 100 us forward (a block of a small model, or a unit of any
other length), twice that backward; its tensor-parallel all-reduces take 20 to 40 % of that.
Gradients are reduce-scattered, parameters gathered, as with a sharded optimizer. Without DIR the
instances go where they are kept. Files that are not in the set are left alone.

With ``--compare [SECONDS]`` nothing is written; each instance is solved, and what joint scheduling
gains over pipeline schedules with collectives added greedily is printed as a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shipped import write_set, writer_options

import ppsolve
from ppsolve.models.core.documents import parse_given
from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import kind_of, lower
from ppsolve.solver.api.registry import all_heuristics
from ppsolve.solver.kinds.pipeline.collectives import (
    add_collectives,
    without_collectives,
)
from ppsolve.solver.kinds.pipeline.published import PUBLISHED

FAMILY = "overlap_pipelines"

FUSED = {"forward": 100, "backward": 200}
SPLIT = {"forward": 100, "backward_input": 100, "backward_weight": 80}


def every_instance() -> dict[str, PipelineInstance]:
    """Return the set: file name below the directory -> instance, named after its file."""
    return {
        f"{FAMILY}/{name}.json": PipelineInstance.parse(
            {
                "name": name,
                "num_devices": devices,
                "num_microbatches": microbatches,
                "p2p": {"latency": 5},
                "optimizer": 20,
                **fields,
            }
        )
        for name, devices, microbatches, fields in described()
    }


def described() -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    """Yield name, devices, micro-batches and the other fields of each instance."""
    yield "tp-split-2x4-2p", 2, 4, pipeline(SPLIT, 4, inside(2, 15, 2, 15), 60, 40)
    yield "tp-fused-2x8-2p", 2, 8, pipeline(FUSED, 4, inside(4, 10, 4, 20), 60, 40)
    for factor, capacity in (("1", 4), ("1.5", 6)):
        fused = pipeline(FUSED, capacity, inside(2, 20, 2, 30), 90, 60)
        yield f"tp-fused-4x8-{factor}p", 4, 8, fused
    yield "tp-split-4x8-2p", 4, 8, pipeline(SPLIT, 8, inside(2, 20, 2, 20), 90, 60)
    yield from uneven()
    half = {"forward": 50, "backward_input": 50, "backward_weight": 40}
    in_v = pipeline(half, 6, inside(2, 10, 2, 10), 60, 50)
    yield "tp-v-2x4", 2, 4, {**in_v, "placement": "vshape"}
    both_ways = pipeline(FUSED, 6, inside(2, 20, 2, 30), 60, 50)
    yield "tp-bidirectional-4x4", 4, 4, {**both_ways, "placement": "bidirectional"}


def uneven() -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    """Yield pipelines with an embedding in the first and a head in the last stage."""
    three = {"forward": [120, 100, 140], "backward": [230, 200, 290]}
    ends = [150, 90, 150], [100, 60, 100]
    yield "tp-uneven-3x6", 3, 6, pipeline(three, 5, inside(3, 12, 3, 18), *ends)
    four = {"forward": [110, 100, 100, 130], "backward": [200, 200, 200, 280]}
    ends = [150, 90, 90, 150], [100, 60, 60, 100]
    two_streams = pipeline(four, 8, inside(2, [22, 20, 20, 20], 2, 30), *ends)
    two_streams["collectives"]["comm_streams"] = "per_kind"
    yield "tp-uneven-4x8-two-streams", 4, 8, two_streams


def inside(
    forward: int, allreduce: Any, backward: int, gradient_allreduce: Any
) -> dict[str, Any]:
    """Return segments and all-reduces of forwards and backwards."""
    return {
        "forward": {"segments": forward, "allreduce": allreduce},
        "backward": {"segments": backward, "allreduce": gradient_allreduce},
    }


def pipeline(
    times: dict[str, Any],
    capacity: int,
    tensor_parallel: dict[str, Any],
    reduce_scatter: Any,
    all_gather: Any,
) -> dict[str, Any]:
    """Return the fields of a pipeline with collectives and room for `capacity` activations."""
    collectives = {
        **tensor_parallel,
        "reduce_scatter": reduce_scatter,
        "all_gather": all_gather,
    }
    if "backward" not in times:
        collectives["backward_input"] = collectives.pop("backward")
    return {
        "times": times,
        "memory": {"capacity": capacity, "activation": 1},
        "collectives": collectives,
    }


@dataclass(frozen=True)
class Comparison:
    """Makespans of one instance, in its unit.

    Parameters
    ----------
    num_ops : int
        Ops of the joint problem.
    published : float
        Best published schedule, collectives added greedily.
    published_by : str
        Its name.
    best_pipeline : float
        Best order of the pipeline without a look at collectives, which are then added greedily.
    joint, bound : float
        Everything scheduled together, and its lower bound.
    """

    num_ops: int
    published: float
    published_by: str
    best_pipeline: float
    joint: float
    bound: float

    @property
    def gain(self) -> float:
        """Share by which the joint schedule is shorter than the best of the greedy ones."""
        greedy = min(self.published, self.best_pipeline)
        return (greedy - self.joint) / greedy


def compare(instance: PipelineInstance, seconds: float) -> Comparison:
    """Solve `instance` jointly and greedily, each search within `seconds` deterministic seconds."""
    problem = lower(instance)
    kind, known = kind_of(instance), all_heuristics()
    outcomes = [
        kind.run_heuristic(known[one.name], instance, problem) for one in PUBLISHED
    ]
    published, name = min(
        (outcome.schedule.value, outcome.name)
        for outcome in outcomes
        if outcome.schedule is not None and outcome.status is HeuristicStatus.FEASIBLE
    )
    best_pipeline = planned(instance, without_collectives(instance), seconds)
    joint = solved(instance, seconds)
    return Comparison(
        num_ops=problem.num_ops,
        published=problem.scale.time(published),
        published_by=name,
        best_pipeline=best_pipeline,
        joint=figure(joint.value),
        bound=figure(joint.bound),
    )


def planned(
    instance: PipelineInstance, plan: PipelineInstance, seconds: float
) -> float:
    """Return the makespan of the best order of `plan` on `instance`."""
    problem, found = lower(instance), solved(plan, seconds)
    order, _ = parse_given(found, lower(plan))
    assert order is not None
    return problem.scale.time(add_collectives(problem, order).value)


def solved(instance: PipelineInstance, seconds: float) -> ppsolve.Result:
    """Return the reproducible answer of `seconds` deterministic seconds."""
    return ppsolve.optimize(instance, time_limit=seconds, deterministic=True)


def figure(value: float | None) -> float:
    """Return a figure that is known to be there."""
    assert value is not None
    return value


def table(seconds: float) -> Iterator[str]:
    """Yield the lines of a table over all instances."""
    columns = (
        "ops",
        "published",
        "best pipeline",
        "joint",
        "bound",
        "gain",
    )
    yield " | ".join(("instance", *columns))
    for name, instance in every_instance().items():
        found = compare(instance, seconds)
        figures = (
            found.num_ops,
            f"{found.published:g} ({found.published_by})",
            f"{found.best_pipeline:g}",
            f"{found.joint:g}",
            f"{found.bound:g}",
            f"{found.gain:.1%}",
        )
        yield " | ".join((Path(name).stem, *map(str, figures)))


def main() -> None:
    """Write the set, or compare."""
    parser = writer_options(__doc__)
    parser.add_argument(
        "--compare", nargs="?", type=float, const=20.0, metavar="SECONDS"
    )
    options = parser.parse_args()
    if options.compare is not None:
        for line in table(options.compare):
            print(line, flush=True)
        return
    write_set(every_instance(), options.directory)


if __name__ == "__main__":
    main()
