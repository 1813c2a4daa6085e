"""From a configuration to its pipeline: layers on stages, times, transfers, memory, all-reduces."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsolve.models.core.problem import most_in_use
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.studies.plan.request import PlanRequest, RankOrder
from ppsolve.models.studies.plan.result import Configuration
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape
from ppsolve.solver.kinds.pipeline.runtimes.family import RuntimeFamily
from ppsolve.solver.studies.plan.layer_figures import LayerFigures, decimal_of, grain_of
from ppsolve.solver.studies.plan.order_memory import (
    MOST_RANKS,
    OpenMoments,
    moments_of_first_order,
    open_moments,
    timed_stages,
)
from ppsolve.solver.studies.plan.split import (
    Boundaries,
    Moments,
    Split,
    SplitProblem,
    SplitUndecidedError,
    best_split,
    even_split,
    least_peak,
    quick_split,
    slowest_device_bound,
)

Devices = tuple[int, ...]

CHOSEN = ("microbatch_size", "replicas", "tensor_parallel", "recompute")
"""Fields of a configuration that its instance names as its origin."""

RECENT_SPLITS = 4096
"""Splits whose transfers and all-reduces are kept."""


class _PlacedSplit(NamedTuple):
    size: int  # of micro-batches
    devices: Devices
    boundaries: Boundaries
    shape: tuple[int, int]  # stages and replicas
    order: RankOrder


class PipelineBuilder:
    """Builds the pipelines of one request; profiles, splits and links are worked out once.

    `runtime`: runs few orders, of which one has to fit the memory.
    """

    def __init__(
        self, request: PlanRequest, runtime: RuntimeFamily | None = None
    ) -> None:
        self.request, self.runtime = request, runtime
        self.layers = cache(self._layers)
        self.lack_of_memory = cache(self._lack_of_memory)
        self._shortest_step = cache(self._shortest_pass)
        self._memory_time = cache(self._time_in_memory)
        self._problem = cache(self._split_problem)
        self.sent = cache(self._sent_bytes)
        self.slowest_device = cache(self._slowest_device)
        self._balanced = cache(self._balanced_split)
        self.least_memory = cache(self._least_memory)
        self.fullest_device = cache(self._fullest_device)
        self.p2p = cache(request.cluster.p2p)
        self.ring = cache(request.cluster.allreduce)
        self._transfer = cache(self._transfer_ticks)
        self._lags = lru_cache(RECENT_SPLITS)(self._transfer_lags)
        self._allreduces = lru_cache(RECENT_SPLITS)(self._allreduce_ticks)

    def _layers(self, size: int) -> LayerFigures:
        model = self.request.model

        def of(name: str) -> list[Fraction]:
            return model.amounts(name, size)

        # Stage times keep 8 digits of one pass through the model. So a layer is off by 5e-8 of a
        # pass at most, and the ticks of a pass are below 1e8, far from the limits of splits.
        one_pass = sum(of("forward")) + sum(model.backward(size))
        tick = Fraction(10) ** (math.floor(math.log10(one_pass)) - 7)

        def rounded(times: list[Fraction]) -> list[Fraction]:
            return [round(time / tick) * tick for time in times]

        halves = rounded(of("backward_input")), rounded(of("backward_weight"))
        fused = [i + w for i, w in zip(*halves, strict=True)]
        activation, state = of("activation_bytes"), of("state_bytes")
        return LayerFigures(
            tick=tick,
            grain=grain_of([*activation, *state]),
            forward=rounded(of("forward")),
            backward=fused if model.is_split else rounded(model.backward(size)),
            backward_input=halves[0],
            backward_weight=halves[1],
            optimizer=rounded(of("optimizer")),
            output=of("output_bytes"),
            parameters=of("parameter_bytes"),
            activation=activation,
            state=state,
        )

    @property
    def capacity(self) -> Fraction | None:
        """Bytes of a device that may be in use; None for no limit."""
        memory = self.request.cluster.memory
        return None if memory is None else most_in_use(Fraction(memory))

    def stage_to_device(self, configuration: Configuration) -> Devices:
        """Return the device of every stage."""
        c = configuration
        return _stage_to_device(c.pipeline_depth, c.virtual_stages, c.placement)

    def refuse_large(self, configuration: Configuration) -> None:
        """Raise `InputError` for a pipeline whose heuristics would take minutes."""
        if configuration.num_ops > 100_000:
            text = f"expected at most 100000 ops in a pipeline to plan, got {configuration.num_ops}"
            raise InputError(text, code=ErrorCode.RANGE)

    def split(
        self, configuration: Configuration, *, quick: bool = False
    ) -> tuple[Boundaries, bool | None] | None:
        """Return the boundaries of the stages, and whether they are proved to be balanced.

        The balanced split leaves room for one of the orders of the runtime. In any order it first
        leaves room for as many micro-batches as 1F1B has in flight; if no split does, for the one
        that every schedule has. Nothing is proved of an even split (None). There is no answer if it
        is proved that no split fits; `SplitUndecidedError` says that none was found, and none was
        excluded.

        `quick`: do not search where devices hold several stages.
        """
        devices = self.stage_to_device(configuration)
        if configuration.layer_split == "even":
            return even_split(self.request.model.num_layers, len(devices)), None
        shape = self._shape(configuration)
        if self.runtime is not None and quick and shape.num_ranks > MOST_RANKS:
            # To compare all orders takes a second.
            first = (moments_of_first_order(self.runtime, shape),)
            split = self._best_balanced(configuration, first, quick=True)
            if split is None:
                raise SplitUndecidedError("the first order does not fit the memory")
            return split.boundaries, False
        moments = self.open_moments(configuration)
        balanced = self._best_balanced(configuration, moments.necessary, quick=quick)
        if balanced is None:
            return None
        with suppress(SplitUndecidedError):
            balanced = (
                self._best_balanced(configuration, moments.likely, quick=quick)
                or balanced
            )
        return balanced.boundaries, balanced.proved

    def _best_balanced(
        self, configuration: Configuration, moments: Sequence[Moments], *, quick: bool
    ) -> Split | None:
        # Of those that leave room for one of the entries.
        devices = self.stage_to_device(configuration)
        size = configuration.microbatch_size
        splits = []
        undecided: SplitUndecidedError | None = None
        for in_flight in moments:
            try:
                split = self._balanced(size, devices, in_flight, quick=quick)
            except SplitUndecidedError as error:
                undecided = error
            else:
                splits += [split] if split is not None else []
        if undecided is not None and not splits:
            raise undecided
        best = min(splits, key=lambda split: split.slowest_device, default=None)
        is_proved = undecided is None and all(split.proved for split in splits)
        return best and replace(best, proved=is_proved)

    def open_moments(
        self, configuration: Configuration, boundaries: Boundaries | None = None
    ) -> OpenMoments:
        """Return the moments of every order that may be run, under a split or under any."""
        shape = self._shape(configuration)
        layers = self.layers(configuration.microbatch_size)
        return open_moments(
            self.runtime, shape, timed_stages(layers, shape, boundaries)
        )

    def _shape(self, configuration: Configuration) -> PipelineShape:
        c = configuration
        is_split = c.backward == "split"
        return PipelineShape(c.microbatches, self.stage_to_device(c), is_split)

    def least_peak(
        self, configuration: Configuration, boundaries: Boundaries | None
    ) -> tuple[int, Fraction]:
        """Return a device and the bytes that one like it holds under every order, at the least.

        `boundaries`: the split, None if any is open.
        """
        size, peaks = configuration.microbatch_size, []
        devices = self.stage_to_device(configuration)
        for in_flight in self.open_moments(configuration, boundaries).necessary:
            problem = self._problem(size, devices, in_flight)
            if boundaries is None:
                peaks.append(least_peak(problem))
            else:
                held = problem.device_bytes(boundaries).tolist()
                peaks.append((held.index(max(held)), max(held)))
        device, grains = min(peaks, key=lambda peak: peak[1])
        return device, grains * self.layers(size).grain

    def _balanced_split(
        self, size: int, devices: Devices, in_flight: Moments, *, quick: bool
    ) -> Split | None:
        problem, fallback = self._problem(size, devices, in_flight), None
        if quick:
            return quick_split(problem)
        with suppress(SplitUndecidedError):
            fallback = self._balanced(size, devices, in_flight, quick=True)
            if fallback is None or fallback.proved:
                return fallback
        try:
            best = best_split(problem)
        except SplitUndecidedError:
            if fallback is None:
                raise
            return fallback
        if (
            fallback is None
            or best is None
            or best.slowest_device < fallback.slowest_device
        ):
            return best
        return replace(fallback, proved=best.proved)

    def _slowest_device(self, size: int, devices: Devices) -> int:
        # A lower bound on its ticks under any split.
        return slowest_device_bound(
            SplitProblem.without_memory(self.layers(size).work, devices)
        )

    def _sent_bytes(self, size: int) -> NDArray[np.float64]:
        # Gradients of the first 0, 1, ... layers.
        return np.array([0.0, *map(float, accumulate(self.layers(size).parameters))])

    def _split_problem(
        self, size: int, devices: Devices, in_flight: Moments
    ) -> SplitProblem:
        layers, capacity = self.layers(size), self.capacity
        static, activation = layers.whole("state"), layers.whole("activation")
        room = (
            None
            if capacity is None
            else (layers.grains(capacity),) * (max(devices) + 1)
        )
        return SplitProblem(layers.work, static, activation, devices, room, in_flight)

    def least_step(self, configuration: Configuration) -> Fraction:
        """Return a lower bound on the step under any split and schedule, in the request's unit.

        Some device does at least its share of the work; one micro-batch passes all layers twice;
        and what all of them keep meanwhile takes its time in the memory of the devices.
        """
        c = configuration
        size, kind = c.microbatch_size, c.backward
        work = self.layers(size).total * Fraction(c.microbatches, c.pipeline_depth)
        held = self._memory_time(size, c.pipeline_depth, kind) * c.microbatches
        return max(work, held, self._shortest_step(size, kind))

    def _shortest_pass(self, size: int, kind: str) -> Fraction:
        # One micro-batch through all layers and back, weight gradients on the way.
        layers = self.layers(size)
        if kind == "fused":
            return layers.total
        there = sum(layers.forward, Fraction(0))
        return sum(layers.backward_input, there) + layers.backward_weight[0]

    def _time_in_memory(self, size: int, depth: int, kind: str) -> Fraction:
        # The time that one micro-batch takes of the memory of all devices, at least. Each layer's
        # activation is kept while the micro-batch passes all layers after it and comes back; all
        # devices together have room for so much at a time, whatever the split.
        layers, capacity = self.layers(size), self.capacity
        if capacity is None:
            return Fraction(0)
        room = depth * capacity - sum(layers.state)
        backward = layers.backward if kind == "fused" else layers.backward_input
        trip = product = Fraction(0)
        rows = list(zip(layers.activation, layers.forward, backward, strict=True))
        for amount, there, back in reversed(rows):
            trip += there + back
            product += amount * trip
        return product / room if room > 0 else Fraction(0)

    def _lack_of_memory(
        self, size: int, depth: int, *, states_only: bool = False
    ) -> Fraction | None:
        # The bytes that some device needs whatever the split, if that is too much: its share of the
        # states and of one micro-batch, or the largest layer.
        layers, capacity = self.layers(size), self.capacity
        held = layers.state if states_only else layers.held
        needed = max(sum(held, Fraction(0)) / depth, *held)
        return None if capacity is None or needed <= capacity else needed

    def _least_memory(self, size: int, devices: Devices) -> Fraction | None:
        # The bytes that some device needs under any split; None if not proved.
        layers = self.layers(size)
        try:
            held = map(layers.grains, layers.held)
            split = best_split(SplitProblem.without_memory(held, devices))
        except InputError:
            return None
        return (
            split.slowest_device * layers.grain
            if split is not None and split.proved
            else None
        )

    def _fullest_device(self, size: int, devices: Devices) -> int:
        # The device that needs most where memory is shared out as evenly as can be.
        layers = self.layers(size)
        problem = SplitProblem.without_memory(map(layers.grains, layers.held), devices)
        split = quick_split(problem)
        if split is None:
            return 0
        return int(problem.device_times(split.boundaries).argmax())

    def pipeline(
        self, configuration: Configuration, boundaries: Sequence[int]
    ) -> Pipeline:
        """Return the pipeline of one replica under a configuration and a split.

        All-reduces are those among all replicas.

        `boundaries`: S + 1 ascending layer indices where stages begin and end.
        """
        c = configuration
        devices, shape = self.stage_to_device(c), (c.pipeline_depth, c.replicas)
        # Neither transfers nor all-reduces depend on the number of micro-batches.
        split = _PlacedSplit(
            c.microbatch_size, devices, tuple(boundaries), shape, c.rank_order
        )
        allreduces = self._allreduces(split, c.backward) if c.replicas > 1 else None
        layers = self.layers(c.microbatch_size)
        return Pipeline(
            self.request, c, layers, boundaries, devices, self._lags(split), allreduces
        )

    def _transfer_lags(self, split: _PlacedSplit) -> dict[tuple[int, int], int]:
        slowest: dict[tuple[int, int], int] = {}
        for (a, b), end in zip(
            pairwise(split.devices), split.boundaries[1:-1], strict=True
        ):
            if a != b:
                time = self._transfer(
                    split.size, end - 1, (a, b), split.shape, split.order
                )
                slowest[a, b] = slowest[b, a] = max(slowest.get((a, b), 0), time)
        return slowest

    def passing_ticks(self, configuration: Configuration, a: int, b: int) -> list[int]:
        """Return the ticks that the output of each layer takes from a device to another one."""
        c, shape = configuration, (configuration.pipeline_depth, configuration.replicas)
        if a == b:
            return [0] * self.request.model.num_layers
        return [
            self._transfer(c.microbatch_size, layer, (a, b), shape, c.rank_order)
            for layer in range(self.request.model.num_layers)
        ]

    def allreduces_before(
        self, configuration: Configuration, device: int, end: int
    ) -> list[int]:
        """Return the ticks that the all-reduce of a stage adds which ends before a layer.

        The first entry is that of a stage with the last layer alone, the last one of all layers.
        """
        c = configuration
        layers, members = self.layers(c.microbatch_size), c.replicas
        link = self.ring(device, (c.pipeline_depth, members), c.rank_order)
        amounts = layers.parameters[:end][::-1]
        if self.request.cluster.gradient_buckets == "layer":
            gradients = (
                layers.backward if c.backward == "fused" else layers.backward_weight
            )
            reduced = [link.ring_allreduce(amount, members) for amount in amounts]
            exposed = _left_after(gradients[:end][::-1], reduced)
        else:
            exposed = (
                link.ring_allreduce(sent, members) for sent in accumulate(amounts)
            )
        return [layers.ticks(time) for time in exposed]

    def _transfer_ticks(
        self,
        size: int,
        layer: int,
        pair: tuple[int, int],
        shape: tuple[int, int],
        order: RankOrder,
    ) -> int:
        layers = self.layers(size)
        return layers.ticks(
            self.p2p(*pair, shape, order).transfer(layers.output[layer])
        )

    def _allreduce_ticks(self, split: _PlacedSplit, backward: str) -> list[int]:
        layers, shape, times = self.layers(split.size), split.shape, []
        by_layer = self.request.cluster.gradient_buckets == "layer"
        gradients = layers.backward if backward == "fused" else layers.backward_weight
        for device, (first, last) in zip(
            split.devices, pairwise(split.boundaries), strict=True
        ):
            link = self.ring(device, shape, split.order)
            amounts = layers.parameters[first:last]
            buckets = amounts if by_layer else [sum(amounts, Fraction(0))]
            reduced = [link.ring_allreduce(amount, shape[1]) for amount in buckets]
            exposed = reduced[0]
            if by_layer:
                *_, exposed = _left_after(gradients[first:last][::-1], reduced[::-1])
            times.append(layers.ticks(exposed))
        return times


@dataclass(frozen=True)
class Pipeline:
    """The pipeline of a configuration whose layers are on stages.

    `boundaries` are S + 1 layer indices where stages begin and end, `devices` those of each stage.
    `lags` are ticks of a transfer by pair of devices (of the largest tensor between them),
    `allreduces` ticks that each stage's all-reduce adds to its last backward; None for one replica.
    """

    request: PlanRequest
    configuration: Configuration
    layers: LayerFigures
    boundaries: Sequence[int]
    devices: Devices
    lags: dict[tuple[int, int], int]
    allreduces: list[int] | None

    def instance(self) -> PipelineInstance:
        """Return the pipeline as an instance; raise `InputError` if it is too large."""
        c, layers = self.configuration, self.layers
        rows = range(c.pipeline_depth)
        latency = [
            layers.decimals([self.lags.get((a, b), 0) for b in rows]) for a in rows
        ]
        variant = (
            "" if c.variant == (1, "none") else f" tp{c.tensor_parallel} {c.recompute}"
        )
        document = {
            "name": (
                f"{self.request.name} p{c.pipeline_depth}x{c.virtual_stages} {c.placement} "
                f"dp{c.replicas} b{c.microbatch_size} m{c.microbatches} {c.rank_order} "
                f"{c.backward} {c.layer_split}{variant}"
            ),
            "time_unit": self.request.time_unit,
            "num_devices": c.pipeline_depth,
            "stages_per_device": c.virtual_stages,
            "num_microbatches": c.microbatches,
            "placement": c.placement,
            "times": {name: self._times(name) for name in ("forward", *self.backwards)},
            "p2p": {"latency": latency},
            "memory": self._memory(),
            "allreduce": None
            if self.allreduces is None
            else layers.decimals(self.allreduces),
            "optimizer": self._times("optimizer") if any(layers.optimizer) else None,
            "plan": self._origin(),
        }
        entries = {name: value for name, value in document.items() if value is not None}
        return PipelineInstance.parse(entries)

    def _origin(self) -> dict[str, Any]:
        c = self.configuration
        alike = self.request.cluster.orders_are_alike(c.pipeline_depth, c.replicas)
        return {
            "request": self.request.name,
            "layers_per_stage": [
                last - first for first, last in pairwise(self.boundaries)
            ],
            "model": self.request.model.letters,
            "rank_order": None if alike else c.rank_order.value,
            **{name: getattr(c, name) for name in CHOSEN},
        }

    @property
    def backwards(self) -> tuple[str, ...]:
        """The fields with the times of backwards; the last one makes gradients of weights."""
        is_fused = self.configuration.backward == "fused"
        return ("backward",) if is_fused else ("backward_input", "backward_weight")

    @property
    def late_share(self) -> Fraction:
        """Share of an activation that the weight gradient gives back."""
        is_fused = self.configuration.backward == "fused"
        share = 0 if is_fused else self.request.model.released_by_backward_weight
        return Fraction(share)

    def sums(self, name: str) -> list[int]:
        """Return a figure of every stage, see `LayerFigures.sums`."""
        return self.layers.sums(name, self.boundaries)

    def _times(self, name: str) -> list[Decimal]:
        return self.layers.decimals(self.sums(name))

    def _memory(self) -> dict[str, Any] | None:
        if self.request.cluster.memory is None:
            return None
        grain = self.layers.grain
        return {
            "capacity": self.request.cluster.memory,
            "activation": [
                decimal_of(grain * amount) for amount in self.sums("activation")
            ],
            "static": [decimal_of(grain * amount) for amount in self.sums("state")],
            "released_by_backward_weight": self.request.model.released_by_backward_weight,
        }


def _left_after(
    backward: Sequence[Fraction], reduced: Sequence[Fraction]
) -> Iterator[Fraction]:
    # Time that all-reduces go on after a backward of the last 1, 2, ... layers, the last one first.
    now = free = Fraction(0)
    for time, allreduce in zip(backward, reduced, strict=True):
        now += time
        free = max(free, now) + allreduce
        yield free - now


@cache
def _stage_to_device(depth: int, virtual_stages: int, placement: str) -> Devices:
    pipeline = {
        "num_devices": depth,
        "stages_per_device": virtual_stages,
        "num_microbatches": 1,
        "placement": placement,
        "times": {"forward": 1, "backward": 1},
    }
    return PipelineInstance.parse(pipeline).stage_to_device
