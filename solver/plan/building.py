"""From a configuration to its pipeline: layers on stages, times, transfers, memory, all-reduces."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import Any, TypeVar

from ppsolve.models.core.problem import most_in_use
from ppsolve.models.documents.errors import InputError
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.plan.request import Cluster, PlanRequest
from ppsolve.models.plan.result import Configuration
from ppsolve.solver.plan.split import (
    Split,
    SplitProblem,
    SplitUndecidedError,
    best_split,
    even_split,
    quick_split,
)


@dataclass(frozen=True)
class LayerFigures:
    """Figures of every layer at one micro-batch size.

    Times are rounded to a `tick`, so that those of stages and devices are sums without an error of
    their own. Memory is exact: a whole number of `grain` bytes.
    """

    tick: Fraction
    grain: Fraction

    forward: list[Fraction]
    backward: list[Fraction]
    backward_input: list[Fraction]
    backward_weight: list[Fraction]
    optimizer: list[Fraction]
    output: list[Fraction]
    parameters: list[Fraction]
    activation: list[Fraction]
    state: list[Fraction]
    _prefixes: dict[str, list[int]] = field(default_factory=dict, repr=False)
    _wholes: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False)

    @cached_property
    def total(self) -> Fraction:
        """Work of one micro-batch in all layers."""
        return sum(self.forward, Fraction(0)) + sum(self.backward, Fraction(0))

    @cached_property
    def held(self) -> list[Fraction]:
        """Bytes that every layer needs when the last one has a micro-batch: its state and one."""
        return [s + a for s, a in zip(self.state, self.activation, strict=True)]

    @cached_property
    def work(self) -> tuple[int, ...]:
        """Ticks of one micro-batch in every layer, there and back."""
        pairs = zip(self.forward, self.backward, strict=True)
        return tuple(self.ticks(forward + backward) for forward, backward in pairs)

    def ticks(self, time: Fraction) -> int:
        """Return a time as the nearest number of ticks."""
        return round(time / self.tick)

    def decimal(self, ticks: int) -> Decimal:
        """Return a time in ticks as a decimal of few digits."""
        return Decimal(ticks) * self._tick

    @cached_property
    def _tick(self) -> Decimal:
        return as_decimal(self.tick)

    def sums(self, field: str, boundaries: Sequence[int]) -> list[int]:
        """Return a figure of every stage in whole ticks or grains.

        Parameters
        ----------
        field, boundaries
            A time, ``activation`` or ``state``; S + 1 layer indices where stages begin and end.

        Returns
        -------
        list of int
            S sums, exact.
        """
        if field not in self._prefixes:
            self._prefixes[field] = [0, *accumulate(self.whole(field))]
        prefix = self._prefixes[field]
        return [prefix[last] - prefix[first] for first, last in pairwise(boundaries)]

    def whole(self, field: str) -> tuple[int, ...]:
        """Return a figure of every layer in whole ticks or grains."""
        if field not in self._wholes:
            convert = self.grains if field in {"activation", "state"} else self.ticks
            self._wholes[field] = tuple(map(convert, getattr(self, field)))
        return self._wholes[field]

    def grains(self, amount: Fraction) -> int:
        """Return the number of grains that fit into an amount of memory."""
        return math.floor(amount / self.grain)


def as_decimal(amount: Fraction | int) -> Decimal:
    """Return a fraction whose denominator divides a power of ten."""
    return Decimal(amount.numerator) / Decimal(amount.denominator)


T = TypeVar("T")

DIGITS = 8
"""Stage times keep this many digits of one pass through the whole model.

So a layer is off by 5e-8 of a pass at most, and the ticks of a pass are below 1e8, far from the
limits of splits (`MOST_SEARCHED_TICKS`).
"""

MOST_OPS = 100_000
"""Pipelines with more ops are not planned with: their heuristics take minutes."""


class PipelineBuilder:
    """Builds the pipelines of one request; profiles and splits are worked out once."""

    def __init__(self, request: PlanRequest) -> None:
        self.request = request
        self._links = ClusterLinks(request.cluster)
        self.layers = lru_cache(maxsize=None)(self._layers)
        self.lack_of_memory = lru_cache(maxsize=None)(self._lack_of_memory)
        self.shortest_step = lru_cache(maxsize=None)(self._shortest_step)
        self.memory_time = lru_cache(maxsize=None)(self._memory_time)
        self._unlimited = lru_cache(maxsize=None)(self._unlimited_split)
        self._balanced = lru_cache(maxsize=None)(self._balanced_split)
        self._least_held = lru_cache(maxsize=None)(self._least_held_under_any_split)

    def _layers(self, size: int) -> LayerFigures:
        model = self.request.model
        forward, backward = model.forward(size), model.backward(size)
        activation, state = model.activation_bytes(size), model.state_bytes()
        tick = Fraction(10) ** (math.floor(math.log10(sum(forward) + sum(backward))) + 1 - DIGITS)

        def rounded(times: list[Fraction]) -> list[Fraction]:
            return [round(time / tick) * tick for time in times]

        parts = rounded(model.backward_input(size)), rounded(model.backward_weight(size))
        both = [i + w for i, w in zip(*parts, strict=True)]
        return LayerFigures(
            tick=tick,
            grain=_grain([*activation, *state]),
            forward=rounded(forward),
            backward=both if model.is_split else rounded(backward),
            backward_input=parts[0],
            backward_weight=parts[1],
            optimizer=rounded(model.optimizer()),
            output=model.output_bytes(size),
            parameters=model.parameter_bytes(),
            activation=activation,
            state=state,
        )

    def stage_to_device(self, configuration: Configuration) -> tuple[int, ...]:
        """Return the device of every stage."""
        c = configuration
        return _stage_to_device(c.pipeline_depth, c.virtual_stages, c.placement)

    def refuse_large(self, configuration: Configuration) -> None:
        """Refuse a pipeline whose heuristics would take minutes.

        Raises
        ------
        InputError
            It has more than `MOST_OPS` ops.
        """
        kinds = 2 if configuration.backward == "fused" else 3
        stages = configuration.pipeline_depth * configuration.virtual_stages
        ops = stages * kinds * configuration.microbatches
        if ops > MOST_OPS:
            raise InputError(f"expected at most {MOST_OPS} ops in a pipeline to plan, got {ops}")

    def split(
        self, configuration: Configuration, *, quick: bool = False
    ) -> tuple[tuple[int, ...], bool | None] | None:
        """Return where stages begin and end, and whether that is proved to be balanced.

        The balanced split first leaves room for as many micro-batches as 1F1B has in flight; where
        no split does, for the one that every schedule has.

        Parameters
        ----------
        configuration : Configuration
            What is split.
        quick : bool
            Do not search where devices hold several stages.

        Returns
        -------
        tuple or None
            Boundaries, and None beside them where the split is not meant to be balanced. None
            where it is proved that no split fits.

        Raises
        ------
        SplitUndecidedError
            No split that fits was found, and none was excluded.
        """
        devices = self.stage_to_device(configuration)
        if configuration.layer_split == "even":
            return even_split(self.request.model.num_layers, len(devices)), None
        depth, size = configuration.pipeline_depth, configuration.microbatch_size
        in_flight = tuple(min(configuration.microbatches, depth - device) for device in devices)
        # What has no room for one micro-batch has none for more.
        least = self._balanced(size, devices, (1,) * len(devices), quick=quick)
        if least is None:
            return None
        with suppress(SplitUndecidedError):
            least = self._balanced(size, devices, in_flight, quick=quick) or least
        return least.boundaries, least.proved

    def _balanced_split(
        self, size: int, devices: tuple[int, ...], in_flight: tuple[int, ...], *, quick: bool
    ) -> Split | None:
        problem = self._split_problem(size, devices, in_flight)
        if not quick:
            return self._searched_split(size, devices, in_flight)
        free = self._unlimited(size, devices)
        # Where the best of all splits fits, it is the best of those that fit.
        return free if free is None or problem.fits(free.boundaries) else quick_split(problem)

    def _searched_split(
        self, size: int, devices: tuple[int, ...], in_flight: tuple[int, ...]
    ) -> Split | None:
        """Return the quick split, or a better one where it is not proved to be balanced."""
        quick = None
        with suppress(SplitUndecidedError):
            quick = self._balanced(size, devices, in_flight, quick=True)
            if quick is None or quick.proved:
                return quick
        try:
            found = best_split(self._split_problem(size, devices, in_flight))
        except SplitUndecidedError:
            if quick is None:
                raise
            return quick
        if quick is None or found is None or found.slowest_device < quick.slowest_device:
            return found
        return replace(quick, proved=found.proved)

    def _unlimited_split(self, size: int, devices: tuple[int, ...]) -> Split | None:
        return quick_split(self._split_problem(size, devices, (1,) * len(devices)).unlimited)

    def _split_problem(
        self, size: int, devices: tuple[int, ...], in_flight: tuple[int, ...]
    ) -> SplitProblem:
        layers = self.layers(size)
        memory = self.request.cluster.memory
        room = None if memory is None else layers.grains(most_in_use(Fraction(memory)))
        return SplitProblem(
            times=layers.work,
            static=layers.whole("state"),
            activation=layers.whole("activation"),
            stage_to_device=devices,
            capacity=None if room is None else (room,) * (max(devices) + 1),
            in_flight=in_flight,
        )

    def _shortest_step(self, size: int, kind: str) -> Fraction:
        """Return the time of one micro-batch through all layers and back, weights on the way."""
        layers = self.layers(size)
        if kind == "fused":
            return layers.total
        there = sum(layers.forward, Fraction(0))
        return sum(layers.backward_input, there) + layers.backward_weight[0]

    def _memory_time(self, size: int, depth: int, kind: str) -> Fraction:
        """Return the time that one micro-batch takes of the memory of all devices, at least.

        Each layer's activation is kept while the micro-batch passes all layers after it and comes
        back; all devices together have room for so much at a time, whatever the split.
        """
        layers, capacity = self.layers(size), self.request.cluster.memory
        if capacity is None:
            return Fraction(0)
        room = depth * most_in_use(Fraction(capacity)) - sum(layers.state)
        backward = layers.backward if kind == "fused" else layers.backward_input
        trip = product = Fraction(0)
        rows = list(zip(layers.activation, layers.forward, backward, strict=True))
        for amount, there, back in reversed(rows):
            trip += there + back
            product += amount * trip
        return product / room if room > 0 else Fraction(0)

    def _lack_of_memory(self, size: int, depth: int) -> Fraction | None:
        """Return the bytes that some device needs whatever the split, if that is too much.

        Its share of the states and of one micro-batch, or the largest layer.
        """
        capacity, held = self.request.cluster.memory, self.layers(size).held
        needed = max(sum(held, Fraction(0)) / depth, *held)
        fits = capacity is None or needed <= most_in_use(Fraction(capacity))
        return None if fits else needed

    def least_memory(self, configuration: Configuration) -> Fraction | None:
        """Return the bytes that some device needs under any split; None where this is not proved.

        States and one micro-batch are what every schedule holds when the last stage begins.
        """
        devices = self.stage_to_device(configuration)
        return self._least_held(configuration.microbatch_size, devices)

    def _least_held_under_any_split(self, size: int, devices: tuple[int, ...]) -> Fraction | None:
        layers = self.layers(size)
        held = tuple(map(layers.grains, layers.held))
        nothing = (0,) * len(held)
        try:
            split = best_split(
                SplitProblem(held, nothing, nothing, devices, None, (1,) * len(devices))
            )
        except InputError:
            return None
        return split.slowest_device * layers.grain if split is not None and split.proved else None

    def instance(self, configuration: Configuration, boundaries: Sequence[int]) -> PipelineInstance:
        """Return the pipeline of one replica under a configuration and a split.

        Parameters
        ----------
        configuration : Configuration
            What is built.
        boundaries : sequence of int
            S + 1 ascending layer indices where stages begin and end.

        Returns
        -------
        PipelineInstance
            In the time unit of the request; all-reduces are those among all replicas.

        Raises
        ------
        InputError
            The pipeline is too large, or its times or amounts are.
        """
        return self.pipeline(configuration, boundaries).instance()

    def pipeline(self, configuration: Configuration, boundaries: Sequence[int]) -> Pipeline:
        """Return the figures of the pipeline that `instance` returns, for the same arguments.

        Parameters
        ----------
        configuration : Configuration
            The configuration.
        boundaries : sequence of int
            First layer of each stage, then the number of layers.

        Returns
        -------
        Pipeline
            The pipeline, field by field.
        """
        layers = self.layers(configuration.microbatch_size)
        devices = self.stage_to_device(configuration)
        return Pipeline(self.request, configuration, layers, boundaries, devices, self._links)


class ClusterLinks:
    """The links of a cluster between the devices of a pipeline, each looked up once.

    Neither transfers nor all-reduces depend on the number of micro-batches, so both are kept.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.p2p = lru_cache(maxsize=None)(cluster.p2p)
        self.allreduce = lru_cache(maxsize=None)(cluster.allreduce)
        self.known: dict[tuple[Any, ...], Any] = {}


@dataclass(frozen=True)
class Pipeline:
    """The pipeline of a configuration whose layers are on stages, field by field."""

    request: PlanRequest
    configuration: Configuration
    layers: LayerFigures
    boundaries: Sequence[int]
    devices: Sequence[int]
    links: ClusterLinks

    def instance(self) -> PipelineInstance:
        """Return the pipeline as an instance."""
        chosen = self.configuration
        document = {
            "name": self._name(),
            "time_unit": self.request.time_unit,
            "num_devices": chosen.pipeline_depth,
            "stages_per_device": chosen.virtual_stages,
            "num_microbatches": chosen.microbatches,
            "placement": chosen.placement,
            "times": {name: self._times(name) for name in ("forward", *self.backwards)},
            "p2p": {"latency": self._latencies()},
            "memory": self._memory(),
            "allreduce": self._allreduces(),
            "optimizer": self._times("optimizer") if any(self.layers.optimizer) else None,
        }
        given = {field: value for field, value in document.items() if value is not None}
        return PipelineInstance.parse(given)

    def _name(self) -> str:
        c = self.configuration
        return (
            f"{self.request.name} p{c.pipeline_depth}x{c.virtual_stages} {c.placement} "
            f"dp{c.replicas} b{c.microbatch_size} m{c.microbatches} {c.rank_order} {c.backward} "
            f"{c.layer_split}"
        )

    @property
    def backwards(self) -> tuple[str, ...]:
        """The fields with the times of backwards; the last one makes gradients of weights."""
        is_fused = self.configuration.backward == "fused"
        return ("backward",) if is_fused else ("backward_input", "backward_weight")

    @property
    def _shape(self) -> tuple[int, int]:
        return self.configuration.pipeline_depth, self.configuration.replicas

    def _stages(self, amounts: list[Fraction]) -> list[list[Fraction]]:
        """Return the amounts of the layers of every stage."""
        return [amounts[first:last] for first, last in pairwise(self.boundaries)]

    def sums(self, name: str) -> list[int]:
        """Return a figure of every stage, see `LayerFigures.sums`."""
        return self.layers.sums(name, self.boundaries)

    def _times(self, name: str) -> list[Decimal]:
        return list(map(self.layers.decimal, self.sums(name)))

    def _memory(self) -> dict[str, Any] | None:
        if self.request.cluster.memory is None:
            return None
        grain = self.layers.grain
        return {
            "capacity": self.request.cluster.memory,
            "activation": [as_decimal(grain * amount) for amount in self.sums("activation")],
            "static": [as_decimal(grain * amount) for amount in self.sums("state")],
            "released_by_backward_weight": self.request.model.released_by_backward_weight,
        }

    def _once(self, name: str, work_out: Callable[[], T]) -> T:
        """Return a figure that pipelines share which differ in their micro-batches only."""
        c = self.configuration
        shape = (c.microbatch_size, c.backward, c.rank_order, self._shape)
        key = (name, *shape, tuple(self.devices), tuple(self.boundaries))
        if key not in self.links.known:
            self.links.known[key] = work_out()
        return self.links.known[key]  # type: ignore[no-any-return]

    def lags(self) -> dict[tuple[int, int], int]:
        """Return the ticks of a transfer by pair of devices: of the largest tensor between them."""
        return self._once("lags", self._work_out_lags)

    def _work_out_lags(self) -> dict[tuple[int, int], int]:
        layers, order = self.layers, self.configuration.rank_order
        slowest: dict[tuple[int, int], int] = {}
        for (a, b), end in zip(pairwise(self.devices), self.boundaries[1:-1], strict=True):
            if a == b:
                continue
            link = self.links.p2p(a, b, self._shape, order)
            time = layers.ticks(link.transfer(layers.output[end - 1]))
            slowest[a, b] = slowest[b, a] = max(slowest.get((a, b), 0), time)
        return slowest

    def _latencies(self) -> list[list[Decimal]]:
        table = [[Decimal(0)] * self._shape[0] for _ in range(self._shape[0])]
        for (a, b), ticks in self.lags().items():
            table[a][b] = self.layers.decimal(ticks)
        return table

    def _allreduces(self) -> list[Decimal] | None:
        ticks = self.allreduces()
        return None if ticks is None else list(map(self.layers.decimal, ticks))

    def allreduces(self) -> list[int] | None:
        """Return the ticks each stage's all-reduce adds to its last backward, if replicated."""
        if self.configuration.replicas == 1:
            return None
        return self._once("allreduces", self._work_out_allreduces)

    def _work_out_allreduces(self) -> list[int]:
        by_layer = self.request.cluster.gradient_buckets == "layer"
        backward = self._stages(getattr(self.layers, self.backwards[-1]))
        stages = zip(self.devices, self._stages(self.layers.parameters), backward, strict=True)
        times, order = [], self.configuration.rank_order
        for device, amounts, last_backward in stages:
            link = self.links.allreduce(device, self._shape, order)
            buckets = amounts if by_layer else [sum(amounts, Fraction(0))]
            reduced = [link.ring_allreduce(amount, self._shape[1]) for amount in buckets]
            left = _left_after(last_backward, reduced) if by_layer else reduced[0]
            times.append(self.layers.ticks(left))
        return times


def _left_after(backward: list[Fraction], reduced: list[Fraction]) -> Fraction:
    """Return the time that all-reduces go on after a backward that makes gradients by layers."""
    now = free = Fraction(0)
    for time, allreduce in zip(reversed(backward), reversed(reduced), strict=True):
        now += time
        free = max(free, now) + allreduce
    return free - now


@cache
def _stage_to_device(depth: int, virtual_stages: int, placement: str) -> tuple[int, ...]:
    """Return the device of every stage, as pipelines of this shape have them."""
    pipeline = {
        "num_devices": depth,
        "stages_per_device": virtual_stages,
        "num_microbatches": 1,
        "placement": placement,
        "times": {"forward": 1, "backward": 1},
    }
    return PipelineInstance.parse(pipeline).stage_to_device


def _grain(amounts: list[Fraction]) -> Fraction:
    """Return the largest amount that all are whole multiples of."""
    scale = math.lcm(*(amount.denominator for amount in amounts))
    return Fraction(math.gcd(*(int(amount * scale) for amount in amounts)) or 1, scale)
