"""A configuration's pipeline as a few arrays, and the problem that they say.

They take about a millisecond, where an instance takes fifty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import IntArray, Pool, Problem, most_in_use
from ppsolve.models.core.timescale import MAX_TICKS, TimeScale
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.kinds.pipeline.stage_arrays import (
    UNLIMITED,
    StageArrays,
    lag_rows,
    skeleton,
)
from ppsolve.solver.studies.plan.building import Pipeline


@dataclass(frozen=True, eq=False)
class PipelineArrays:
    """A pipeline of S stages as arrays in ticks and grains.

    `stages`: one column; parts of a grain are given back late, so that what is counted is never
        below what is in use.
    `fast`: the same with parts of a grain given back early, for bounds.
    `tails`: int64[S] each, ops after the last backward of each stage by field: all-reduces, then
        optimizer steps, as far as there are some.
    """

    pipeline: Pipeline
    stages: StageArrays
    fast: StageArrays
    tails: dict[str, IntArray]

    @classmethod
    def of(cls, pipeline: Pipeline) -> PipelineArrays:
        """Return the arrays of a pipeline.

        Raises `InputError` where a time is too long to be counted in ticks.
        """
        fields = ("forward", *pipeline.backwards)
        duration = np.array([pipeline.sums(field) for field in fields])
        ticks = (
            {} if pipeline.allreduces is None else {"allreduce": pipeline.allreduces}
        )
        if any(pipeline.layers.optimizer):
            ticks["optimizer"] = pipeline.sums("optimizer")
        tails = {field: np.array(row) for field, row in ticks.items()}
        longest = max(
            int(duration.max()), *pipeline.lags.values(), *ticks.get("allreduce", ()), 0
        )
        if longest > MAX_TICKS:
            raise InputError(
                f"expected times of at most {MAX_TICKS} ticks, got {longest}",
                code=ErrorCode.RANGE,
            )
        # Links are as slow in both directions.
        hops = [pipeline.lags.get(hop, 0) for hop in pairwise(pipeline.devices)]
        lag = np.array([0, *hops, 0, 0, *hops])
        after = np.sum([np.zeros_like(duration[0]), *tails.values()], axis=0)
        times = duration[..., None], lag[:, None], after[:, None]
        return cls(pipeline, *_with_memory(pipeline, times), tails)

    @property
    def microbatches(self) -> int:
        """Number of micro-batches."""
        return self.stages.microbatches

    @property
    def device(self) -> IntArray:
        """Device of each stage, int64[S]."""
        return self.stages.device

    @property
    def duration(self) -> IntArray:
        """Ticks of a forward, of a backward, and of a weight gradient if split: int64[rows, S]."""
        return self.stages.duration[..., 0]

    @property
    def num_ops(self) -> int:
        """Number of ops of micro-batches."""
        return self.stages.duration.size * self.microbatches

    @property
    def bound(self) -> int:
        """Lower bound on the makespan in ticks."""
        return int(np.max(list(self.fast.bounds().values())))

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal pipelines."""
        arrays = (self.device, *self.stages[2:], *self.tails.values())
        same = [array.tobytes() for array in arrays]
        return (self.microbatches, self.pipeline.layers.tick, *self.tails, *same)


def _with_memory(
    pipeline: Pipeline, times: tuple[IntArray, IntArray, IntArray]
) -> tuple[StageArrays, StageArrays]:
    device, capacity = np.array(pipeline.devices), pipeline.request.cluster.memory
    room = np.full((device.max() + 1, 1), UNLIMITED)
    amounts = [0] * len(device)
    if capacity is not None:
        amounts = pipeline.sums("activation")
        room[:] = pipeline.layers.grains(most_in_use(Fraction(capacity)))
        np.subtract.at(room[:, 0], device, np.array(pipeline.sums("state")))
    share, by = pipeline.late_share.numerator, pipeline.late_share.denominator
    rounded = (
        amounts,
        [-(-n * share // by) for n in amounts],
        [n * share // by for n in amounts],
    )
    held, late, early = (np.array(column)[:, None] for column in rounded)
    is_whole = bool((late == early).all())
    count = pipeline.configuration.microbatches
    stages = StageArrays(device, count, *times, held, late, room)
    stages = stages.with_whole_rooms(is_whole)
    # Amounts in parts of a grain are at most a grain above what is counted.
    return stages, stages._replace(late=early, room=stages.room + (not is_whole))


def lowered(arrays: PipelineArrays) -> tuple[PipelineInstance, Problem]:
    """Return a pipeline of the same shape, and the problem but for the tick."""
    instance, shape = _of_shape(arrays, tuple(arrays.tails))
    duration = np.repeat(arrays.duration.ravel(), arrays.microbatches)
    if arrays.tails:
        duration = np.concatenate(
            [duration, np.stack([*arrays.tails.values()], axis=1).ravel()]
        )
    row = lag_rows(shape, shape.before, shape.after)
    request = arrays.pipeline.request
    problem = replace(
        shape,
        scale=TimeScale(arrays.pipeline.layers.tick, request.time_unit),
        duration=duration,
        lag=np.where(shape.lag > 0, arrays.stages.lag[row, 0], 0),
        pools=_pools(arrays) if request.cluster.memory is not None else (),
    )
    return instance, problem


def without_tails(arrays: PipelineArrays) -> tuple[PipelineInstance, Problem]:
    """Return a pipeline and a problem of the same shape without all-reduces and optimizer steps.

    All its times are 1.
    """
    return _of_shape(arrays)


def _of_shape(
    arrays: PipelineArrays, tails: tuple[str, ...] = ()
) -> tuple[PipelineInstance, Problem]:
    devices, is_split = arrays.pipeline.devices, len(arrays.duration) == 3
    return skeleton(devices, arrays.microbatches, is_split=is_split, tails=tails)


def _pools(arrays: PipelineArrays) -> tuple[Pool, ...]:
    share, layers = arrays.pipeline.late_share, arrays.pipeline.layers
    released = [
        (row, fraction)
        for row, fraction in enumerate((1 - share, share), 1)
        if fraction
    ]
    states = np.array(arrays.pipeline.sums("state"), dtype=object)
    count, stages = arrays.microbatches, len(arrays.device)
    pools = []
    for device in range(len(arrays.stages.room)):
        mine = np.flatnonzero(arrays.device == device)
        amounts = [
            layers.grain * amount for amount in arrays.stages.held[mine, 0].tolist()
        ]
        shift = 0
        if len(released) > 1:
            amounts += [
                amount * fraction for _, fraction in released for amount in amounts
            ]
            shift = len(mine)
        forwards = (mine[:, None] * count + np.arange(count)).ravel()
        index = np.repeat(np.arange(len(mine)), count)
        pool = Pool(
            key=DeviceName("device", (device,)),
            capacity=Fraction(arrays.pipeline.request.cluster.memory or 0),
            initial=layers.grain * int(states[mine].sum()),
            amounts=tuple(amounts),
            acquire_op=forwards,
            acquire_amount=index,
            release_op=np.concatenate(
                [forwards + row * stages * count for row, _ in released]
            ),
            release_amount=np.concatenate(
                [index + position * shift for position in range(1, len(released) + 1)]
            ),
        )
        pools.append(pool)
    return tuple(pools)
