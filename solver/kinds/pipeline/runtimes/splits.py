"""Splits of layers for a runtime of few orders: each order with each rule of recomputing."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np

from ppsolve.models.core.problem import IntArray, Objective
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.layers import (
    in_chunks,
    open_chunks,
    with_whole_backwards,
)
from ppsolve.models.kinds.pipeline.lowering import lower_split
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.pipeline.claimed import CHUNKS
from ppsolve.solver.kinds.pipeline.layers.linear import (
    SplitAnswer,
    SplitTimes,
    common_rows,
    in_flight_at_forwards,
    peaks_of_order,
    rounding_of,
)
from ppsolve.solver.kinds.pipeline.layers.ordered import (
    MODEL_LIMITS,
    PATHS,
    OrderedSplits,
    even_counts,
)
from ppsolve.solver.kinds.pipeline.layers.rules import RecomputeRule
from ppsolve.solver.kinds.pipeline.layers.search import HEAT, LayerSearch
from ppsolve.solver.kinds.pipeline.runtimes.family import RuntimeFamily
from ppsolve.solver.kinds.pipeline.runtimes.timing import RuntimeSettings, settings_of

NEVER = 2**62
"""Makespan of a split that does not fit."""

KNOWN_RATES = 50_000
"""Splits of one setting whose makespans are kept."""

MOST_RATED = 20_000
"""Splits of all settings together that are all rated."""

SLOW = 50
"""Splits rated by a kernel in the time of one whose memory or transfers need a schedule."""

NUM_OPENED = 8
"""Settings that get a first split in each turn of the search."""

NUM_PROVED = 2
"""Settings whose bound is raised in each turn of the search."""

PROOF_SHARE = 0.1
"""Share of the time left that goes to one of them."""

NUM_ANNEALED = 6
"""Settings whose splits are annealed in each turn of the search."""

FIRST_STEPS, MOST_STEPS = 1_000, 16_000
"""Splits that are rated the first time that settings are annealed, doubled each time, and later."""


class RuntimeShape:
    """A pipeline with layers whose devices have as many stages each as a runtime may give them.

    `instance`: the pipeline, its placement no longer open.
    `unsplit`: the same with whole backwards, as the runtime runs them.
    `even`: the even split of that.
    """

    def __init__(
        self, family: RuntimeFamily, instance: PipelineInstance, scale: TimeScale
    ) -> None:
        self.family, self.instance = family, instance
        layers = instance.layers
        assert layers is not None
        self.layers, self.types = layers, len(layers.names)
        self.least = layers.least(instance.num_stages)
        self.unsplit = with_whole_backwards(instance)
        self.even = lower_split(self.unsplit, even_counts(self.unsplit), scale=scale)
        self.times = SplitTimes.of(self.unsplit, scale)
        # Ticks by which sums over the layers of all micro-batches may be too long.
        self.rounding = rounding_of(instance, scale)
        self._splits: dict[int, OrderedSplits] = {}

    @property
    def stages(self) -> int:
        """Number of stages."""
        return self.instance.num_stages

    @property
    def is_longest_path(self) -> bool:
        """Whether orders alone decide when ops start, and how much memory is in use.

        Transfers and all-reduces are served first come, first served. Where an op of no time holds
        memory, that is one of moments, not of orders. Where times are rounded, those of a stage are
        not sums over its layers.
        """
        instance = self.instance
        return bool(
            instance.p2p.mode == "delay"
            and instance.allreduce is None
            and instance.objective is Objective.MAKESPAN
            and not self.rounding
            and self._take_time_where_they_hold()
        )

    def _take_time_where_they_hold(self) -> bool:
        """Whether forwards and backwards take time in any split, but for those of empty stages."""
        ticks, ends = self.times.fixed, (self.layers.first, self.layers.last)
        if (
            min(self.times.each[0, 0].min(), self.times.each[1:, 0].sum(axis=0).min())
            <= 0
        ):
            return False
        return all(
            end is None
            or self.least[stage] > 0
            or not end.activation
            or min(ticks[0, stage], ticks[1:, stage].sum()) > 0
            for stage, end in zip((0, -1), ends, strict=True)
        )

    @property
    def num_rated(self) -> int:
        """Number of ways to share the layers out, times the effort for each."""
        free = self.layers.body.count - int(self.least.sum())
        count = math.comb(free + self.stages - 1, self.stages - 1)
        return count if self.is_longest_path else count * SLOW

    def every_split(self) -> Iterator[IntArray]:
        """Yield the layers of each stage, int64[S], of every split."""
        places = self.layers.body.count - int(self.least.sum()) + self.stages
        for cuts in combinations(range(1, places), self.stages - 1):
            ends = (0, *cuts, places)
            more = np.array([b - a - 1 for a, b in pairwise(ends)], dtype=np.int64)
            yield self.least + more

    def least_time(self, rule: RecomputeRule) -> int:
        """Return ticks that some device needs in any split, whatever memory there is.

        Within a time every device takes so many layers, the most where all but one of its stages
        have as few as they may; together they have to take all. So few have stages before.
        """
        count, devices = self.layers.body.count, self.instance.num_devices
        fixed = self.times.fixed.sum(axis=0)
        ready = np.zeros(devices, dtype=np.int64)
        if self.instance.objective is Objective.MAKESPAN:
            least = rule.counts(self.least, self.types)
            alone = self.times.ticks(least).sum(axis=0)[:devices]
            ready = np.cumsum(alone) - alone
        busy = [
            self.instance.num_microbatches
            * (self._ticks_of_device(device, rule) + fixed[device::devices].sum())
            + ready[device]
            for device in range(devices)
        ]
        spare = count - int(self.least.sum())

        def are_taken(limit: int) -> bool:
            sizes = [int(np.searchsorted(row, limit, side="right")) for row in busy]
            return min(sizes) > 0 and sum(sizes) - devices >= spare

        ticks_needed = bisect_left(range(NEVER), True, key=are_taken)
        return max(0, ticks_needed - self.rounding)

    def _ticks_of_device(self, device: int, rule: RecomputeRule) -> IntArray:
        """Return the least ticks of so many layers on a device, from as few as it may have.

        Under a rule for the first layers of stages the fewest recompute where one stage has most.
        """
        own = slice(device, None, self.instance.num_devices)
        least, layer = self.least[own], self.times.each[:, :, device].sum(axis=0)
        layers = np.arange(least.sum(), self.layers.body.count + 1)
        of_type = layers
        if rule.limit is not None:
            few = np.minimum(least, rule.limit)
            of_type = np.stack(
                [
                    few.sum()
                    - few[k]
                    + np.minimum(layers - least.sum() + n, rule.limit)
                    for k, n in enumerate(least.tolist())
                ]
            ).min(axis=0)
        return layer[0] * (layers - of_type) + layer[rule.number] * of_type

    @cached_property
    def settings(self) -> list[RuntimeSettings]:
        """Every order with every rule."""
        return list(settings_of(self.family, self.instance))

    @cached_property
    def in_flight(self) -> list[IntArray] | None:
        """Micro-batches in flight under every order, for each device int64[rows, its stages].

        None where memory is not decided by orders.
        """
        if not self.is_longest_path:
            return None
        devices = self.instance.stage_to_device
        by_id = {id(settings.orders): settings.orders for settings in self.settings}
        first, *further = by_id.values()
        common = peaks_of_order(devices, first)
        for orders in further:
            tables = in_flight_at_forwards(devices, orders)
            common = list(map(common_rows, common, tables))
        return common

    def modelled(self, rule: RecomputeRule, clock: Clock) -> SplitAnswer:
        """Return a good split under a rule, and a bound on all of them under every order."""
        from ppsolve.solver.kinds.pipeline.layers.model import LayerModel

        if self.instance.objective is not Objective.MAKESPAN:
            return SplitAnswer(None, 0)
        scale = self.even.scale
        model = LayerModel(self.unsplit, scale, self.in_flight, rule=rule)
        return model.solve(MODEL_LIMITS, clock)

    def splits(self, settings: RuntimeSettings) -> OrderedSplits:
        """Return the splits under the order of settings, which those of other rules share."""
        key = id(settings.orders)
        if key not in self._splits:
            self._splits[key] = OrderedSplits(self.unsplit, self.even, settings.orders)
        return self._splits[key]


@dataclass(eq=False)
class Contender:
    """Settings of a runtime, with the best split that is known for them.

    `bound`: ticks below which no split of these settings is; `NEVER` where none fits.
    `layers`: int64[S], the best split; `value` is its makespan.
    `is_open`: whether any split was looked for.
    `proofs`, `rounds`: how often the bound was raised, and splits annealed.
    """

    shape: RuntimeShape
    settings: RuntimeSettings
    bound: int
    layers: IntArray | None = None
    value: int = NEVER
    is_open: bool = False
    proofs: int = 0
    rounds: int = 0
    _rates: dict[bytes, int | None] = field(default_factory=dict)
    _tried: list[IntArray] = field(default_factory=list)

    @cached_property
    def splits(self) -> OrderedSplits:
        """The splits under its order."""
        return self.shape.splits(self.settings)

    @property
    def is_longest_path(self) -> bool:
        """As of its shape."""
        return self.shape.is_longest_path

    @property
    def rule(self) -> RecomputeRule:
        """Which layers recompute."""
        assert self.settings.rule is not None
        return self.settings.rule

    def counts(self, layers: IntArray) -> IntArray:
        """Return a split by type, int64[types, S]."""
        return self.rule.counts(layers, self.shape.types)

    def rate(self, layers: IntArray) -> int | None:
        """Return the makespan of a split in ticks, None where memory is too small."""
        key = layers.tobytes()
        if key not in self._rates:
            if len(self._rates) >= KNOWN_RATES:
                self._rates.clear()
            self._rates[key] = self._rated(self.counts(layers))
        return self._rates[key]

    def _rated(self, counts: IntArray) -> int | None:
        if self.is_longest_path:
            return self.splits.rate(counts)
        schedule = self.schedule(counts)
        return None if check_schedule(schedule.problem, schedule) else schedule.value

    def schedule(self, counts: IntArray) -> Schedule:
        """Return the schedule of a split as the runtime runs it."""
        instance = self.shape.instance
        problem = lower_split(instance, counts, scale=self.splits.scale)
        return self.settings.timed(instance, problem)

    def consider(self, layers: IntArray | None) -> None:
        """Keep a split if it is better than the best one."""
        rated = None if layers is None else self.rate(layers)
        if rated is not None and rated < self.value:
            self.layers, self.value = layers, rated

    def fill(self) -> None:
        """Share out layer after layer, each to the least busy device that has room for it."""
        self.is_open = True
        shape = self.shape
        layers = shape.least.copy()
        devices = np.array(shape.instance.stage_to_device)
        for _ in range(shape.layers.body.count - int(layers.sum())):
            ticks = shape.times.ticks(self.counts(layers)).sum(axis=0)
            busy = np.bincount(devices, weights=ticks)[devices]
            for stage in np.lexsort((ticks, busy)).tolist():
                layers[stage] += 1
                if not self.is_longest_path or self.splits.fits(self.counts(layers)):
                    break
                layers[stage] -= 1
            else:
                return
        self.consider(layers)

    @property
    def steps(self) -> int:
        """Splits that are rated the next time that it is annealed."""
        steps = min(FIRST_STEPS << min(self.rounds, 20), MOST_STEPS)
        return steps if self.is_longest_path else -(-steps // SLOW)

    def anneal(self, seed: int, clock: Clock) -> None:
        """Search a better split from the best one, every third time from a hotter start."""

        def rate(counts: IntArray) -> int | None:
            return self.rate(counts[0])

        if self.layers is None:
            return
        heat = HEAT * (10 if self.rounds % 3 == 2 else 1)
        search = LayerSearch(
            rate, seed, self.steps, least=self.shape.least, heat=heat, by_clock=False
        )
        search.run(self.layers[None, :], clock, self.bound)
        self.rounds += 1
        self.consider(None if search.best is None else search.best[0])

    def enumerate(self, clock: Clock) -> None:
        """Rate every split, which makes the best one the bound."""
        self.is_open = True
        for layers in self.shape.every_split():
            if clock.is_over:
                return
            self.consider(layers)
        self.bound = max(self.bound, self.value)

    def prove(self, clock: Clock, value: int, paths: int = PATHS) -> None:
        """Raise the bound by a model of all splits that grows by longest paths.

        `value`: makespan of the best settings; a bound above it is not asked for.
        `paths`: longest paths at the most.
        """
        self.proofs += 1
        if self.layers is not None and not self._tried:
            self._tried.append(self.counts(self.layers))
        below = None if value == NEVER else value
        answer = self.splits.by_paths(clock, self.rule, paths, below, self._tried)
        self.bound = max(self.bound, NEVER if answer.is_infeasible else answer.bound)
        if answer.counts is not None:
            self.consider(answer.counts.sum(axis=0))


@dataclass(eq=False)
class RuledShape:
    """A shape under a rule: what no order of the runtime can be better than.

    `bound`: ticks below which no split is, in any order; `NEVER` where none fits.
    `contenders`: the orders, where one of them may be the best.
    """

    shape: RuntimeShape
    rule: RecomputeRule
    bound: int
    contenders: list[Contender] = field(default_factory=list)

    @property
    def bound_of_orders(self) -> int:
        """Ticks below which no split of any order is."""
        bounds = (contender.bound for contender in self.contenders)
        return min(bounds, default=self.bound)


class RuntimeSplits:
    """All settings of a runtime of few orders for a pipeline with layers.

    `scale`: ticks of every split.
    `keep`: called with contenders that are worth a report, each time they have a better split.
    """

    def __init__(
        self,
        family: RuntimeFamily,
        instance: PipelineInstance,
        scale: TimeScale,
        keep: Callable[[Contender], None],
    ) -> None:
        self.family, self.scale, self._keep = family, scale, keep
        self._chunks = open_chunks(instance)
        placed = [in_chunks(instance, n) for n in self._chunks] or [instance]
        shapes = [
            self._shape(shaped) for shaped in placed if not family.obstacle(shaped)
        ]
        ruled = (
            RuledShape(shape, rule, shape.least_time(rule))
            for shape in shapes
            for rule in family.rules(shape.layers, shape.stages)
        )
        self.ruled = sorted(ruled, key=lambda pair: (pair.shape.stages, pair.bound))
        self.value = NEVER
        self._kept: dict[Contender, int] = {}

    def _shape(self, instance: PipelineInstance) -> RuntimeShape:
        return RuntimeShape(self.family, instance, self.scale)

    @property
    def contenders(self) -> list[Contender]:
        """Settings that may be better than the best ones, those of the least bound first."""
        alive = (
            contender
            for ruled in self.ruled
            for contender in ruled.contenders
            if contender.bound < self.value
        )
        return sorted(alive, key=lambda contender: contender.bound)

    @property
    def bound(self) -> int:
        """Ticks below which nothing is that the runtime runs; `NEVER` where nothing fits."""
        return min(self.value, min(ruled.bound_of_orders for ruled in self.ruled))

    @property
    def bounds_by_stages(self) -> dict[int, int]:
        """Ticks below which no split into so many stages is; `NEVER` where none fits."""
        bounds: dict[int, int] = {}
        for ruled in self.ruled:
            stages = ruled.shape.stages
            bounds[stages] = min(bounds.get(stages, NEVER), ruled.bound_of_orders)
        return bounds

    @property
    def num_settings(self) -> int:
        """Number of settings that were looked at, one by one or all of a rule together."""
        return sum(len(ruled.contenders) or 1 for ruled in self.ruled)

    def begin(self, clock: Clock) -> None:
        """Rate a first split of each shape and rule that may be the best, and bound all of them.

        Where there are few splits in all, each of them is rated.
        """
        for ruled in self.ruled:
            # One rule for all layers of few stages, for a first schedule before any model.
            if ruled.shape is self.ruled[0].shape and ruled.rule.limit is None:
                self._contend(ruled)
        for ruled in self.ruled:
            if clock.is_over:
                return
            if ruled.bound < self.value:
                self._bound(ruled, clock)
        if (
            sum(contender.shape.num_rated for contender in self.contenders)
            <= MOST_RATED
        ):
            for contender in self.contenders:
                if contender.bound < self.value:
                    contender.enumerate(clock)
                    self._note(contender)

    def _contend(self, ruled: RuledShape) -> None:
        """Make the orders of a rule contenders, and look for a split of the first one."""
        ruled.contenders = [
            Contender(ruled.shape, self._named(settings, ruled.shape), ruled.bound)
            for settings in ruled.shape.settings
            if settings.rule == ruled.rule
        ]
        ruled.contenders[0].fill()
        self._note(ruled.contenders[0])

    def _bound(self, ruled: RuledShape, clock: Clock) -> None:
        """Bound a shape and rule by a model, and rate its answer where it may be the best."""
        answer = ruled.shape.modelled(ruled.rule, clock)
        ruled.bound = max(ruled.bound, NEVER if answer.is_infeasible else answer.bound)
        if ruled.bound < self.value and not ruled.contenders:
            self._contend(ruled)
        for contender in ruled.contenders:
            contender.bound = max(contender.bound, ruled.bound)
        if ruled.bound < self.value and answer.counts is not None:
            ruled.contenders[0].consider(answer.counts.sum(axis=0))
            self._note(ruled.contenders[0])

    def _named(self, settings: RuntimeSettings, shape: RuntimeShape) -> RuntimeSettings:
        """Return settings that say how many stages each device has, where that is open."""
        if not self._chunks:
            return settings
        chunks = shape.stages // shape.instance.num_devices
        words = settings.words
        if chunks > 1:
            words = f"{chunks} virtual stages, {words}"
        return replace(settings, words=words, named={CHUNKS: chunks} | settings.named)

    def _note(self, contender: Contender) -> None:
        """Keep a better split of a contender for the report."""
        if contender.value < self._kept.get(contender, NEVER):
            self._kept[contender] = contender.value
            self.value = min(self.value, contender.value)
            self._keep(contender)

    def search(
        self, clock: Clock, seed: int, turns: float, conclude: Callable[[], bool]
    ) -> None:
        """Search better splits and better bounds in turns, until nothing can be better.

        `turns`: how many at the most.
        `conclude`: called after each turn; returns whether what is known suffices.
        """
        number = 0
        while number < turns and (alive := self.contenders):
            for contender in self._turn(alive, seed + number, clock):
                self._note(contender)
                if clock.is_over:
                    return
            number += 1
            if conclude():
                return

    def _turn(
        self, alive: list[Contender], seed: int, clock: Clock
    ) -> Iterator[Contender]:
        """Yield some settings, each after something was done for it."""
        unopened = [contender for contender in alive if not contender.is_open]
        for contender in unopened[:NUM_OPENED]:
            contender.fill()
            if contender.layers is None and contender.is_longest_path:
                contender.prove(clock, self.value, paths=1)
            yield contender
        fitting = [contender for contender in alive if contender.layers is not None]
        fitting.sort(key=lambda contender: contender.value)
        for contender in fitting[:NUM_ANNEALED]:
            contender.anneal(seed, clock)
            yield contender
        modelled = [
            contender
            for contender in alive
            if contender.is_open and contender.is_longest_path
        ]
        modelled.sort(key=lambda contender: contender.proofs)
        for contender in modelled[:NUM_PROVED]:
            contender.prove(clock.share(PROOF_SHARE), self.value)
            yield contender
