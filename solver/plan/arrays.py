"""A configuration's pipeline as a few arrays, and lower bounds on its makespan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ppsolve.models.core.problem import IntArray, Pool, Problem, most_in_use
from ppsolve.models.core.timescale import MAX_TICKS, TimeScale
from ppsolve.models.documents.errors import InputError
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.lowering import lower_pipeline
from ppsolve.solver.plan.building import Pipeline

UNLIMITED = 2**60
"""Room of a device without a limit, in grains."""

KEPT_SKELETONS = 8
"""Skeletons kept at a time. The planner takes configurations of one shape one after the other."""


@dataclass(frozen=True, eq=False)
class Outline:
    """Times in ticks and memory in grains of a pipeline of S stages on D devices.

    Parameters
    ----------
    pipeline : Pipeline
        Where they come from.
    device : int64[S]
        Device of each stage.
    duration : int64[rows, S]
        Time of one forward, of one backward, and of one weight gradient where backwards are split.
    lag : int64[D, D]
        Transfer from device to device.
    held : int64[S]
        Taken by a forward.
    freed : int64[rows, S]
        Given back at the end of an op; zero in row 0.
    room : int64[D]
        What is left beside the states.
    allreduce, optimizer : int64[S] or None
        Ops after the last backward of each stage.
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

    @property
    def microbatches(self) -> int:
        """Number of micro-batches."""
        return self.pipeline.configuration.microbatches

    @property
    def key(self) -> tuple[object, ...]:
        """What all outlines of one and the same pipeline have in common."""
        arrays = (self.device, self.duration, self.lag, self.held, self.freed, self.room)
        tails = (self.allreduce, self.optimizer)
        same = [None if part is None else part.tobytes() for part in (*arrays, *tails)]
        return (self.microbatches, self.pipeline.layers.tick, *same)

    @property
    def num_ops(self) -> int:
        """Number of ops of micro-batches."""
        return self.duration.size * self.microbatches


def outline(pipeline: Pipeline) -> Outline:
    """Return the outline of a pipeline.

    Raises
    ------
    InputError
        A time is too long to be counted in ticks.
    """
    device = np.array(pipeline.devices)
    duration = np.array([pipeline.sums(name) for name in ("forward", *pipeline.backwards)])
    lag = np.zeros((device.max() + 1,) * 2, dtype=np.int64)
    lags, reduced = pipeline.lags(), pipeline.allreduces()
    longest = max(int(duration.max()), *lags.values(), *(reduced or ()), 0)
    if longest > MAX_TICKS:
        raise InputError(f"expected times of at most {MAX_TICKS} ticks, got {longest}")
    for pair, ticks in lags.items():
        lag[pair] = ticks
    held, freed, room = _memory(pipeline, device, len(duration))
    optimizer = pipeline.sums("optimizer")
    return Outline(
        pipeline=pipeline,
        device=device,
        duration=duration,
        lag=lag,
        held=held,
        freed=freed,
        room=room,
        allreduce=None if reduced is None else np.array(reduced),
        optimizer=np.array(optimizer) if any(pipeline.layers.optimizer) else None,
    )


def _memory(pipeline: Pipeline, device: IntArray, rows: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return the amounts that forwards take and other ops give back, and the room; in grains."""
    stages, capacity = len(device), pipeline.request.cluster.memory
    freed = np.zeros((rows, stages), dtype=np.int64)
    room = np.full(device.max() + 1, UNLIMITED, dtype=np.int64)
    if capacity is None:
        return np.zeros(stages, dtype=np.int64), freed, room
    held = np.array(pipeline.sums("activation"))
    # Parts of a grain are given back late: what is counted is never below what is in use.
    share = Fraction(pipeline.request.model.released_by_backward_weight)
    freed[1] = held if rows == 2 else [int(int(amount) * (1 - share)) for amount in held]
    freed[-1] = held - freed[1:-1].sum(axis=0)
    room[:] = pipeline.layers.grains(most_in_use(Fraction(capacity)))
    np.subtract.at(room, device, np.array(pipeline.sums("state")))
    return held, freed, room


def outlined(shown: Outline) -> tuple[PipelineInstance, Problem]:
    """Return a pipeline of the same shape, and the problem but for the tick.

    The arrays of the problem that do not depend on times are those of the shape.
    """
    chosen, layers = shown.pipeline.configuration, shown.pipeline.layers
    instance, skeleton = _skeleton(
        chosen.pipeline_depth,
        chosen.virtual_stages,
        chosen.placement,
        chosen.microbatches,
        chosen.backward,
        shown.allreduce is not None,
        shown.optimizer is not None,
    )
    tails = [part for part in (shown.allreduce, shown.optimizer) if part is not None]
    repeated = np.repeat(shown.duration.ravel(), shown.microbatches)
    lag = shown.lag[skeleton.device[skeleton.before], skeleton.device[skeleton.after]]
    problem = replace(
        skeleton,
        scale=TimeScale(layers.tick, shown.pipeline.request.time_unit),
        duration=np.concatenate([repeated, *([np.stack(tails, axis=1).ravel()] if tails else [])]),
        lag=np.where(skeleton.lag > 0, lag, 0),
        pools=_pools(shown) if shown.pipeline.request.cluster.memory is not None else (),
    )
    return instance, problem


@lru_cache(maxsize=KEPT_SKELETONS)
def _skeleton(
    depth: int,
    virtual_stages: int,
    placement: str,
    microbatches: int,
    backward: str,
    has_allreduce: bool,
    has_optimizer: bool,
) -> tuple[PipelineInstance, Problem]:
    """Lower a pipeline of a shape whose times are all 1."""
    kinds = ("backward",) if backward == "fused" else ("backward_input", "backward_weight")
    document = {
        "num_devices": depth,
        "stages_per_device": virtual_stages,
        "num_microbatches": microbatches,
        "placement": placement,
        "times": dict.fromkeys(("forward", *kinds), 1),
        "p2p": {"latency": 1},
        **({"allreduce": 1} if has_allreduce else {}),
        **({"optimizer": 1} if has_optimizer else {}),
    }
    instance = PipelineInstance.parse(document)
    return instance, lower_pipeline(instance)


def _pools(shown: Outline) -> tuple[Pool, ...]:
    """Return the pool of every device, exact."""
    share = Fraction(shown.pipeline.request.model.released_by_backward_weight)
    rows = len(shown.duration)
    parts = (Fraction(1),) if rows == 2 else (1 - share, share)
    released = [(row, part) for row, part in enumerate(parts, 1) if part]
    states = np.array(shown.pipeline.sums("state"), dtype=object)
    known: dict[tuple[int, ...], tuple[Fraction, ...]] = {}
    pools = []
    for device in range(len(shown.room)):
        mine = np.flatnonzero(shown.device == device)
        held = tuple(shown.held[mine].tolist())
        if held not in known:
            known[held] = _amounts(shown.pipeline.layers.grain, held, released)
        pools.append(_pool(shown, device, mine, known[held], released, int(states[mine].sum())))
    return tuple(pools)


def _amounts(
    grain: Fraction, held: tuple[int, ...], released: list[tuple[int, Fraction]]
) -> tuple[Fraction, ...]:
    """Return the amounts that stages take, then those of each part unless they are the same."""
    taken = tuple(grain * amount for amount in held)
    if len(released) == 1:
        return taken
    return taken + tuple(amount * part for _, part in released for amount in taken)


def _pool(
    shown: Outline,
    device: int,
    mine: IntArray,
    amounts: tuple[Fraction, ...],
    released: list[tuple[int, Fraction]],
    states: int,
) -> Pool:
    pipeline, count, stages = shown.pipeline, shown.microbatches, len(shown.device)
    forwards = (mine[:, None] * count + np.arange(count)).ravel()
    index, size = np.repeat(np.arange(len(mine)), count), stages * count
    shift = 0 if len(released) == 1 else len(mine)
    return Pool(
        name=f"device {device}",
        capacity=Fraction(pipeline.request.cluster.memory or 0),
        initial=pipeline.layers.grain * states,
        amounts=amounts,
        acquire_op=forwards,
        acquire_amount=index,
        release_op=np.concatenate([forwards + row * size for row, _ in released]),
        release_amount=np.concatenate(
            [index + place * shift for place in range(1, len(released) + 1)]
        ),
    )


def links_of(shown: Outline) -> tuple[IntArray, IntArray]:
    """Return the lags from each stage to the next and to the one before: int64[S] each."""
    there, back = np.zeros_like(shown.held), np.zeros_like(shown.held)
    for stage, (a, b) in enumerate(pairwise(shown.device.tolist())):
        there[stage], back[stage + 1] = shown.lag[a, b], shown.lag[b, a]
    return there, back


def makespan_floor(shown: Outline) -> int:
    """Return the larger of the floors by work and by memory, in ticks."""
    return max(work_floor(shown), memory_floor(shown))


def work_floor(shown: Outline) -> int:
    """Return a lower bound on the makespan in ticks: per device least head + load + least tail.

    As micro-batches are alike, heads and tails are those of one of them.
    """
    head, tail = _head(shown), _least_tail(shown)
    load = shown.duration.sum(axis=0) * shown.microbatches
    devices = range(len(shown.room))
    floors = (
        head[shown.device == d].min()
        + load[shown.device == d].sum()
        + tail[shown.device == d].min()
        for d in devices
    )
    return int(max(floors))


def memory_floor(shown: Outline) -> int:
    """Return a lower bound on the makespan in ticks, by what devices hold and how long they do.

    A stage holds the activation of a micro-batch while that passes all later stages and comes
    back. Per device, amounts times times of all micro-batches are at most its room times the time
    between its least head and its least tail. Where whole activations come and go, what is in use
    is a multiple of their greatest common divisor, and the room is rounded down to one.
    """
    head, tail = _head(shown), _least_tail(shown)
    share = _late_share(shown)
    products = _byte_ticks(shown, share)
    floors = [0]
    for device in range(len(shown.room)):
        mine = np.flatnonzero(shown.device == device)
        unit = int(np.gcd.reduce(shown.held[mine]))
        room = int(shown.room[device])
        # Amounts in parts of a grain are at most a grain above what is counted.
        room = room // max(unit, 1) * unit if share.denominator == 1 else room + 1
        if unit and room > 0:
            total = shown.microbatches * sum(products[stage] for stage in mine.tolist())
            floors.append(int(head[mine].min()) - (-total // room) + int(tail[mine].min()))
    return max(floors)


def _late_share(shown: Outline) -> Fraction:
    """Return the share of an activation that the weight gradient gives back."""
    if len(shown.duration) == 2:
        return Fraction(0)
    return Fraction(shown.pipeline.request.model.released_by_backward_weight)


def _byte_ticks(shown: Outline, share: Fraction) -> list[int]:
    """Return the least amount times time that one micro-batch takes of each stage's memory."""
    weight = shown.duration[2].tolist() if len(shown.duration) == 3 else [0] * len(shown.device)
    held = shown.held.tolist()
    late = (amount * share.numerator // share.denominator for amount in held)
    trips = _round_trips(shown).tolist()
    return [
        amount * trip + part * time
        for amount, trip, part, time in zip(held, trips, late, weight, strict=True)
    ]


def _round_trips(shown: Outline) -> IntArray:
    """Return the least time from the start of a forward to the end of its backward: int64[S]."""
    there, back = links_of(shown)
    own = shown.duration[:2].sum(axis=0)
    own[:-1] += there[:-1] + back[1:]
    trips: IntArray = np.cumsum(own[::-1])[::-1]
    return trips


def _head(shown: Outline) -> IntArray:
    """Return the earliest start of each stage: int64[S]."""
    there, _ = links_of(shown)
    return np.concatenate([[0], np.cumsum(shown.duration[0] + there)[:-1]])


def _least_tail(shown: Outline) -> IntArray:
    """Return the least time from the end of any last op of each stage to the end: int64[S]."""
    _, back = links_of(shown)
    rows, stages = shown.duration.shape
    ends = [part for part in (shown.allreduce, shown.optimizer) if part is not None]
    after: IntArray = np.sum(ends, axis=0) if ends else np.zeros(stages, dtype=np.int64)
    weight = shown.duration[2] if rows == 3 else np.zeros(stages, dtype=np.int64)
    tail = weight + after  # of backwards, from their ends
    for stage in range(1, stages):
        path = back[stage] + shown.duration[1, stage - 1] + tail[stage - 1]
        tail[stage] = max(tail[stage], path)
    return np.minimum(tail, after) if rows == 3 else tail
