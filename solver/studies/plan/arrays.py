"""A configuration's pipeline as a few arrays, and lower bounds on its makespan.

They take about a millisecond, where an instance takes fifty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import IntArray, Pool, Problem, most_in_use
from ppsolve.models.core.timescale import MAX_TICKS, TimeScale
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.solver.studies.plan.building import Pipeline


@dataclass(frozen=True, eq=False)
class PipelineArrays:
    """Times in ticks and memory in grains of a pipeline of S stages on D devices.

    `device`: int64[S], device of each stage.
    `duration`: int64[rows, S], time of one forward, of one backward, and of one weight
        gradient where backwards are split.
    `lag`: int64[D, D], transfer from device to device.
    `held`, `freed`: int64[S], int64[rows, S], memory taken by a forward, and given back
        at the end of an op; zero in row 0.
    `room`: int64[D], memory without the states.
    `allreduce`, `optimizer`: int64[S] or None, ops after the last backward of each
        stage.
    """

    pipeline: Pipeline
    device: IntArray
    duration: IntArray
    lag: IntArray
    held: IntArray
    freed: IntArray
    room: IntArray
    allreduce: IntArray | None
    optimizer: IntArray | None

    @classmethod
    def of(cls, pipeline: Pipeline) -> PipelineArrays:
        """Return the arrays of a pipeline.

        Raises `InputError` where a time is too long to be counted in ticks.
        """
        device = np.array(pipeline.devices)
        duration = np.array(
            [pipeline.sums(name) for name in ("forward", *pipeline.backwards)]
        )
        lag = np.zeros((device.max() + 1,) * 2, dtype=np.int64)
        reduced = pipeline.allreduces
        longest = max(int(duration.max()), *pipeline.lags.values(), *(reduced or ()), 0)
        if longest > MAX_TICKS:
            raise InputError(
                f"expected times of at most {MAX_TICKS} ticks, got {longest}"
            )
        for pair, ticks in pipeline.lags.items():
            lag[pair] = ticks
        held, freed, room = _memory(pipeline, device, len(duration))
        allreduce = None if reduced is None else np.array(reduced)
        has_optimizer = any(pipeline.layers.optimizer)
        optimizer = np.array(pipeline.sums("optimizer")) if has_optimizer else None
        return cls(
            pipeline, device, duration, lag, held, freed, room, allreduce, optimizer
        )

    @property
    def microbatches(self) -> int:
        """Number of micro-batches."""
        return self.pipeline.configuration.microbatches

    @property
    def num_ops(self) -> int:
        """Number of ops of micro-batches."""
        return self.duration.size * self.microbatches

    @property
    def tails(self) -> list[IntArray]:
        """Durations of all-reduces and optimizer steps, as far as there are some."""
        return [tail for tail in (self.allreduce, self.optimizer) if tail is not None]

    @property
    def late_share(self) -> Fraction:
        """Share of an activation that the weight gradient gives back."""
        if len(self.duration) == 2:
            return Fraction(0)
        return Fraction(self.pipeline.request.model.released_by_backward_weight)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal pipelines."""
        arrays = (
            self.device,
            self.duration,
            self.lag,
            self.held,
            self.freed,
            self.room,
        )
        tails = (self.allreduce, self.optimizer)
        same = [
            None if array is None else array.tobytes() for array in (*arrays, *tails)
        ]
        return (self.microbatches, self.pipeline.layers.tick, *same)

    def links(self) -> tuple[IntArray, IntArray]:
        """Return the lags from each stage to the next and to the one before: int64[S] each."""
        there, back = np.zeros_like(self.held), np.zeros_like(self.held)
        for stage, (a, b) in enumerate(pairwise(self.device.tolist())):
            there[stage], back[stage + 1] = self.lag[a, b], self.lag[b, a]
        return there, back


def _memory(
    pipeline: Pipeline, device: IntArray, rows: int
) -> tuple[IntArray, IntArray, IntArray]:
    # Amounts that forwards take and other ops give back, and the room; in grains.
    stages, capacity = len(device), pipeline.request.cluster.memory
    freed = np.zeros((rows, stages), dtype=np.int64)
    room = np.full(device.max() + 1, 2**60, dtype=np.int64)
    if capacity is None:
        return np.zeros(stages, dtype=np.int64), freed, room
    held = np.array(pipeline.sums("activation"))
    # Parts of a grain are given back late: what is counted is never below what is in use.
    share = Fraction(pipeline.request.model.released_by_backward_weight)
    freed[1] = (
        held if rows == 2 else [int(int(amount) * (1 - share)) for amount in held]
    )
    freed[-1] = held - freed[1:-1].sum(axis=0)
    room[:] = pipeline.layers.grains(most_in_use(Fraction(capacity)))
    np.subtract.at(room, device, np.array(pipeline.sums("state")))
    return held, freed, room


def lowered(arrays: PipelineArrays) -> tuple[PipelineInstance, Problem]:
    """Return a pipeline of the same shape, and the problem but for the tick."""
    instance, skeleton = _of_shape(
        arrays, arrays.allreduce is not None, arrays.optimizer is not None
    )
    duration = np.repeat(arrays.duration.ravel(), arrays.microbatches)
    if arrays.tails:
        duration = np.concatenate([duration, np.stack(arrays.tails, axis=1).ravel()])
    lag = arrays.lag[skeleton.device[skeleton.before], skeleton.device[skeleton.after]]
    request = arrays.pipeline.request
    problem = replace(
        skeleton,
        scale=TimeScale(arrays.pipeline.layers.tick, request.time_unit),
        duration=duration,
        lag=np.where(skeleton.lag > 0, lag, 0),
        pools=_pools(arrays) if request.cluster.memory is not None else (),
    )
    return instance, problem


def without_tails(arrays: PipelineArrays) -> tuple[PipelineInstance, Problem]:
    """Return a pipeline and a problem of the same shape without all-reduces and optimizer steps.

    All its times are 1.
    """
    return _of_shape(arrays, has_allreduce=False, has_optimizer=False)


def _of_shape(
    arrays: PipelineArrays, has_allreduce: bool, has_optimizer: bool
) -> tuple[PipelineInstance, Problem]:
    c = arrays.pipeline.configuration
    shape = c.pipeline_depth, c.virtual_stages, c.placement, c.microbatches
    return _skeleton(shape, arrays.pipeline.backwards, has_allreduce, has_optimizer)


# The planner takes configurations of one shape one after the other.
@lru_cache(maxsize=8)
def _skeleton(
    shape: tuple[int, int, str, int],
    backwards: tuple[str, ...],
    has_allreduce: bool,
    has_optimizer: bool,
) -> tuple[PipelineInstance, Problem]:
    depth, virtual_stages, placement, microbatches = shape
    document = {
        "num_devices": depth,
        "stages_per_device": virtual_stages,
        "num_microbatches": microbatches,
        "placement": placement,
        "times": dict.fromkeys(("forward", *backwards), 1),
        "p2p": {"latency": 1},
        **({"allreduce": 1} if has_allreduce else {}),
        **({"optimizer": 1} if has_optimizer else {}),
    }
    instance = PipelineInstance.parse(document)
    return instance, lower_pipeline(instance)


def _pools(arrays: PipelineArrays) -> tuple[Pool, ...]:
    share, layers = arrays.late_share, arrays.pipeline.layers
    released = [
        (row, fraction)
        for row, fraction in enumerate((1 - share, share), 1)
        if fraction
    ]
    states = np.array(arrays.pipeline.sums("state"), dtype=object)
    count, stages = arrays.microbatches, len(arrays.device)
    pools = []
    for device in range(len(arrays.room)):
        mine = np.flatnonzero(arrays.device == device)
        amounts = [layers.grain * amount for amount in arrays.held[mine].tolist()]
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


def lacks_room(arrays: PipelineArrays) -> bool:
    """Whether some device has no room for one micro-batch: then no schedule fits."""
    needed = np.zeros_like(arrays.room)
    np.add.at(needed, arrays.device, arrays.held)
    return bool((needed > arrays.room).any())


def makespan_bound(arrays: PipelineArrays) -> int:
    """Return a lower bound on the makespan in ticks: the larger one by load and by memory."""
    return max(load_bound(arrays), memory_bound(arrays))


def load_bound(arrays: PipelineArrays) -> int:
    """Return a lower bound on the makespan in ticks: per device least head + load + least tail.

    As micro-batches are alike, heads and tails are those of one of them. Weight gradients may all
    run while the last micro-batch goes home.
    """
    head, home, tail = _head(arrays), _home(arrays), _least_tail(arrays)
    load = arrays.duration.sum(axis=0) * arrays.microbatches
    passing = load - _weight(arrays) * arrays.microbatches
    masks = [arrays.device == device for device in range(len(arrays.room))]
    bounds = (
        max(load[mine].sum() + tail[mine].min(), passing[mine].sum() + home[mine].min())
        for mine in masks
    )
    return int(
        max(head[mine].min() + bound for mine, bound in zip(masks, bounds, strict=True))
    )


def memory_bound(arrays: PipelineArrays) -> int:
    """Return a lower bound on the makespan in ticks, by what devices hold and how long they do.

    A stage holds the activation of a micro-batch while that passes all later stages and comes
    back. Per device, amounts times times of all micro-batches are at most its room times the time
    between its least head and its least tail. Where whole activations come and go, what is in use
    is a multiple of their greatest common divisor, and the room is rounded down to one.
    """
    head, tail = _head(arrays), _least_tail(arrays)
    share = arrays.late_share
    products = _byte_ticks(arrays, share)
    bounds = [0]
    for device in range(len(arrays.room)):
        mine = np.flatnonzero(arrays.device == device)
        unit = int(np.gcd.reduce(arrays.held[mine]))
        room = int(arrays.room[device])
        # Amounts in parts of a grain are at most a grain above what is counted.
        room = room // max(unit, 1) * unit if share.denominator == 1 else room + 1
        if unit and room > 0:
            total = arrays.microbatches * sum(
                products[stage] for stage in mine.tolist()
            )
            bounds.append(
                int(head[mine].min()) - (-total // room) + int(tail[mine].min())
            )
    return max(bounds)


def _byte_ticks(arrays: PipelineArrays, share: Fraction) -> list[int]:
    # The least amount times time that one micro-batch takes of each stage's memory.
    there, back = arrays.links()
    durations = arrays.duration[:2].sum(axis=0)
    durations[:-1] += there[:-1] + back[1:]
    # From the start of a forward to the end of its backward.
    trips = np.cumsum(durations[::-1])[::-1]
    held, weight = arrays.held.tolist(), _weight(arrays).tolist()
    late = (amount * share.numerator // share.denominator for amount in held)
    return [
        amount * trip + late_amount * time
        for amount, trip, late_amount, time in zip(
            held, trips.tolist(), late, weight, strict=True
        )
    ]


def _weight(arrays: PipelineArrays) -> IntArray:
    return (
        arrays.duration[2] if len(arrays.duration) == 3 else np.zeros_like(arrays.held)
    )


def _head(arrays: PipelineArrays) -> IntArray:
    # The earliest start of each stage: int64[S].
    there, _ = arrays.links()
    return np.concatenate([[0], np.cumsum(arrays.duration[0] + there)[:-1]])


def _after(arrays: PipelineArrays) -> IntArray:
    return np.sum([np.zeros_like(arrays.held), *arrays.tails], axis=0)


def _home(arrays: PipelineArrays) -> IntArray:
    # The least time from the end of the last backward of each stage to the end: int64[S].
    _, back = arrays.links()
    tail = _weight(arrays) + _after(arrays)
    for stage in range(1, len(tail)):
        path = back[stage] + arrays.duration[1, stage - 1] + tail[stage - 1]
        tail[stage] = max(tail[stage], path)
    return tail


def _least_tail(arrays: PipelineArrays) -> IntArray:
    # The same from the end of any last op.
    return (
        np.minimum(_home(arrays), _after(arrays))
        if len(arrays.duration) == 3
        else _home(arrays)
    )
