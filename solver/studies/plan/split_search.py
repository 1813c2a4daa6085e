"""Splits of a configuration: bounds on all, moves rated by quick schedules, lists of contenders."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.studies.plan.request import Link, PlanRequest
from ppsolve.models.studies.plan.result import Configuration
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kinds.pipeline.layers.search import HEAT, LayerSearch
from ppsolve.solver.kinds.pipeline.runtimes.family import RuntimeFamily
from ppsolve.solver.studies.goodput.step import StepTime
from ppsolve.solver.studies.plan.arrays import PipelineArrays
from ppsolve.solver.studies.plan.building import PipelineBuilder
from ppsolve.solver.studies.plan.candidate import Candidate, Level
from ppsolve.solver.studies.plan.fixed_orders import (
    OrderScheduler,
    orders_by_name,
    orders_decide_memory,
    orders_of_runtime,
)
from ppsolve.solver.studies.plan.list_scheduling import (
    QuickSchedule,
    QuickScheduler,
    start_by_rule,
)
from ppsolve.solver.studies.plan.ordered_splits import (
    OrderedSplit,
    SplitAnnealing,
    layer_sums,
)
from ppsolve.solver.studies.plan.params import PlanParams, WarmUpRule
from ppsolve.solver.studies.plan.split import Boundaries, boundaries_of

CONFIGURATIONS = 32
"""Configurations whose sums over layers are kept."""

NEVER = 2**62
"""Bound of a stage that does not fit its device."""


@dataclass(frozen=True)
class SplitEffort:
    """How far splits are listed."""

    # Splits that may be better: all are scheduled, more are not listed.
    most: int = 500
    # Beginnings of splits that are looked at: a second at most.
    most_nodes: int = 40_000
    # Entries of tables of bounds; larger ones are not made, and the bound is that of all work.
    most_entries: int = 4_000_000


class SplitBounds:
    """What a stage takes that has the layers from a to b, whatever the other stages have.

    Rows and columns of tables count a and b from the first place that they can have at the stage:
    one layer each for the stages before and after. All figures are at most those of
    `PipelineArrays` under any split, in ticks.

    `configuration`: the configuration; its own split is ignored.
    `effort`: limits of tables and lists.
    """

    def __init__(
        self,
        builder: PipelineBuilder,
        configuration: Configuration,
        effort: SplitEffort = SplitEffort(),
    ) -> None:
        self._builder, self._effort = builder, effort
        self._configuration = configuration
        self._layers = builder.layers(configuration.microbatch_size)
        self._devices = builder.stage_to_device(configuration)
        self._count = configuration.microbatches
        self._is_fused = configuration.backward == "fused"
        self._rows = len(self._layers.work) - len(self._devices) + 1
        back = "backward" if self._is_fused else "backward_input"
        self._forward, self._backward = self._prefix("forward"), self._prefix(back)
        self._weight = self._prefix("backward_weight")
        if self._is_fused:
            self._weight = np.zeros_like(self._forward)
        self._work = self._forward + self._backward + self._weight
        self._lags = np.cumsum([0, *self._least_lags()])

    def _prefix(self, name: str) -> IntArray:
        return np.array(self._layers.prefix(name))

    def _least_lags(self) -> Iterator[int]:
        # Of the smallest tensor that may pass from each stage to the next.
        c, layers = self._configuration, self._layers
        shape = (c.pipeline_depth, c.replicas)
        for stage in range(len(self._devices) - 1):
            a, b = self._devices[stage : stage + 2]
            smallest = min(layers.output[stage : stage + self._rows])
            link = self._builder.p2p(a, b, shape, c.rank_order)
            yield 0 if a == b else layers.ticks(link.transfer(smallest))

    @property
    def bound(self) -> int:
        """Lower bound on the makespan of every split: stage by stage, and of all work."""
        by_stage = int(self._reach[0][0]) if self._tables else 0
        return max(by_stage, self._work_bound())

    def _work_bound(self) -> int:
        # Devices share the work, some device has several of the longest layers, and none works
        # before its first stage may begin.
        spare = [
            self._head(stage, stage) + self._home(stage, stage)
            for stage in self._firsts
        ]
        shared = -(-(self._count * int(self._work[-1]) + sum(spare)) // len(spare))
        slowest = self._builder.slowest_device(
            self._configuration.microbatch_size, self._devices
        )
        return max(shared, self._count * slowest + min(spare))

    @cached_property
    def _firsts(self) -> list[int]:
        return [
            self._devices.index(d) for d in range(self._configuration.pipeline_depth)
        ]

    def _head(self, stage: int, first: int) -> int:
        return int(self._forward[first] + self._lags[stage])

    def _home(self, stage: int, first: int) -> int:
        # What follows the last op of the device of which this is the first stage.
        after = self._least_after[self._devices[stage]]
        if not self._is_fused or stage == 0:
            return after
        return max(after, int(self._backward[first] + self._lags[stage]))

    @cached_property
    def _least_after(self) -> list[int]:
        # Of any stage of each device, with a single layer.
        first = np.arange(self._rows)
        shortest = [NEVER] * self._configuration.pipeline_depth
        for stage, device in enumerate(self._devices):
            after = self._after(stage, stage + first, stage + first + 1)
            shortest[device] = min(shortest[device], int(after.min()))
        return shortest

    @cached_property
    def _tables(self) -> list[IntArray]:
        stages, rows = len(self._devices), self._rows
        if rows < 1 or stages * rows * rows > self._effort.most_entries:
            return []
        return [self._table(stage) for stage in range(stages)]

    @cached_property
    def _reach(self) -> list[IntArray]:
        """For each stage and its first layer the least bound of it and all that follow it."""
        last = np.full(self._rows, NEVER)
        last[-1] = 0
        bounds = [last]
        for table in reversed(self._tables):
            bounds.append(np.maximum(table, bounds[-1]).min(axis=1))
        return bounds[::-1]

    def _table(self, stage: int) -> IntArray:
        first = np.arange(stage, stage + self._rows)[:, None]
        end = first.T + 1
        after = self._after(stage, first, end)
        head = self._forward[first] + self._lags[stage]
        # The last micro-batch goes home through all earlier stages.
        home = (
            self._backward[first] + self._lags[stage] if stage else np.zeros_like(first)
        )
        tail = np.maximum(after, home) if self._is_fused else after
        work = self._count * (self._work[end] - self._work[first])
        later = self._count * (self._weight[end] - self._weight[first])
        table = np.maximum(
            head + work + tail, head + work - later + np.maximum(after, home)
        )
        table = np.maximum(table, self._by_memory(stage, first, end, head + tail))
        table[end <= first] = NEVER
        return np.asarray(table)

    def _by_memory(
        self, stage: int, first: IntArray, end: IntArray, fixed: IntArray
    ) -> IntArray:
        # A micro-batch is held while it passes all later stages and comes back; only so many fit.
        capacity = self._builder.capacity
        if capacity is None:
            return fixed
        state, activation = self._prefix("state"), self._prefix("activation")
        room = self._layers.grains(capacity) - (state[end] - state[first])
        held = activation[end] - activation[first]
        share = Fraction(self._builder.request.model.released_by_backward_weight)
        is_whole = self._is_fused or share.denominator == 1
        # Parts of a grain are given back late.
        fitting = (room if is_whole else room + held) // np.maximum(held, 1)
        passage = self._forward + self._backward
        trip = passage[-1] - passage[first] + 2 * (self._lags[-1] - self._lags[stage])
        if is_whole and share:
            trip = trip + self._weight[end] - self._weight[first]
        takes = -(-self._count * trip // np.maximum(fitting, 1))
        bound = np.where(held > 0, fixed + takes, fixed)
        bound[held > room] = NEVER
        return bound

    def _after(self, stage: int, first: IntArray, end: IntArray) -> IntArray:
        # What all-reduce and optimizer add to the last backward, at least.
        c, layers = self._configuration, self._layers
        optimizer = self._prefix("optimizer")
        bound = optimizer[end] - optimizer[first]
        if c.replicas == 1:
            return bound
        shape = (c.pipeline_depth, c.replicas)
        link = self._builder.ring(self._devices[stage], shape, c.rank_order)
        sent = self._builder.sent(c.microbatch_size)
        ring = partial(
            _ring_ticks, link=link, members=c.replicas, tick=float(layers.tick)
        )
        if self._builder.request.cluster.gradient_buckets == "stage":
            return bound + ring(np.maximum(sent[end] - sent[first], 0.0))
        # The last bucket is sent after the backward; all of them after that of the last layer.
        times = ring(np.diff(sent))
        sums = np.concatenate([[0], np.cumsum(times)])
        grads = self._backward if self._is_fused else self._weight
        exposed = sums[end] - sums[first] - (grads[end - 1] - grads[first])
        return bound + np.maximum(times[first], exposed)

    def below(self, limit: int) -> list[Boundaries] | None:
        """Return all splits not proved to take at least `limit` ticks; None if too many."""
        if not self._tables:
            return None
        splits: list[Boundaries] = []
        nothing = (0,) * self._configuration.pipeline_depth
        stack: list[tuple[Boundaries, tuple[int, ...]]] = [((0,), nothing)]
        nodes = 0
        while stack:
            split, loads = stack.pop()
            stage = len(split) - 1
            if stage == len(self._devices):
                splits.append(split)
                continue
            row = self._tables[stage][split[-1] - stage]
            stops = np.flatnonzero(np.maximum(row, self._reach[stage + 1]) < limit)
            nodes += len(stops) + 1
            if nodes > self._effort.most_nodes or len(splits) > self._effort.most:
                return None
            for end in stops.tolist():
                longer = (*split, end + stage + 1)
                grown = self._grown(longer, loads)
                if self._is_open(longer, grown, limit):
                    stack.append((longer, grown))
        return splits if len(splits) <= self._effort.most else None

    def _grown(self, split: Boundaries, loads: tuple[int, ...]) -> tuple[int, ...]:
        device = self._devices[len(split) - 2]
        work = int(self._work[split[-1]] - self._work[split[-2]])
        return (*loads[:device], loads[device] + work, *loads[device + 1 :])

    def _is_open(self, split: Boundaries, loads: tuple[int, ...], limit: int) -> bool:
        # Whether the devices that have further stages can take the layers that are left.
        placed = len(split) - 1
        room = 0
        for device, (stage, load) in enumerate(zip(self._firsts, loads, strict=True)):
            first = split[stage] if stage < placed else stage - placed + split[-1]
            spare = limit - 1 - self._head(stage, first) - self._home(stage, first)
            free = spare // self._count - load
            if free < 0:
                return False
            room += free if device in self._devices[placed:] else 0
        return room >= int(self._work[-1] - self._work[split[-1]])


MOST_TICKS = 2.0**58
"""Longer all-reduces count as this long: sums of a few of them stay whole numbers."""


def _ring_ticks(
    amounts: np.ndarray, *, link: Link, members: int, tick: float
) -> IntArray:
    # `Link.ring_allreduce` in doubles, rounded down.
    bandwidth = float(link.bandwidth or np.inf)
    transfer = float(link.latency) + amounts / members / bandwidth
    time = 2 * (members - 1) * transfer / tick
    ticks: IntArray = np.floor(np.minimum(time * (1 - 1e-9) - 1, MOST_TICKS)).astype(
        np.int64
    )
    return np.asarray(np.where(amounts > 0, np.maximum(ticks, 0), 0))


class _Walk(NamedTuple):
    steps: int  # splits that are rated at most
    seed: int
    heat: float
    schedules: int  # of each split: fewer of larger ones are rated


@dataclass
class _BestSplit:
    ticks: int | None = None
    split: Boundaries | None = None

    def offer(self, split: Boundaries, ticks: int | None) -> None:
        if ticks is not None and (self.ticks is None or ticks < self.ticks):
            self.split, self.ticks = split, ticks


class SplitSearch:
    """Searches the splits of candidates by their quick schedules.

    `runtime`: runs few orders, which are all that is allowed.
    """

    def __init__(
        self,
        request: PlanRequest,
        params: PlanParams,
        clock: Clock,
        runtime: RuntimeFamily | None = None,
    ) -> None:
        self.builder = PipelineBuilder(request, runtime)
        self._names = request.search.schedules
        by_name = orders_by_name(self._names)
        self._orders = OrderScheduler(
            orders_of_runtime(runtime) if runtime else by_name
        )
        self._is_runtime = runtime is not None
        self.quick = QuickScheduler(self.builder)
        self._params, self._clock = params, clock
        self._sums = lru_cache(CONFIGURATIONS)(partial(layer_sums, self.builder))
        self._under_orders: dict[int, OrderedSplit] = {}

    def bound(self, candidate: Candidate) -> Fraction:
        """Return a lower bound on the step of a candidate under every split."""
        bounds = SplitBounds(self.builder, candidate.configuration)
        return bounds.bound * self._tick(candidate)

    def schedule(
        self, arrays: PipelineArrays, rules: Sequence[WarmUpRule]
    ) -> QuickSchedule | None:
        """Return the best schedule of a pipeline by rules, or by what the request allows.

        None where nothing fits the memory.
        """
        if self._is_runtime:
            return self._orders.schedule(arrays)
        if self._names is None:
            return self.quick.by_rules(arrays, tuple(rules))
        under_order = self._orders.schedule(arrays)
        return under_order or self.quick.named(arrays, self._names)

    def best_under_orders(self, arrays: PipelineArrays) -> QuickSchedule | None:
        """Return the best schedule of a pipeline under all orders that are allowed."""
        return self._orders.best_schedule(arrays)

    def improved_under_orders(
        self, candidate: Candidate, steps: int, seed: int = 0
    ) -> tuple[PipelineArrays, QuickSchedule | None] | None:
        """Return the best split of a candidate that was found under fixed orders, and its schedule.

        None where there is no order.

        `steps`, `seed`: effort, as of `improved`.
        """
        arrays, heats = candidate.arrays, self._params.order_heats
        assert arrays is not None
        assert candidate.boundaries is not None
        known = self._under_orders.get(candidate.index)
        # What sweeps have made of another split is a beginning too.
        start = candidate.boundaries if known is None or seed % 2 else known.boundaries
        annealing = SplitAnnealing(
            self._sums(candidate.configuration),
            self._orders.first_orders(arrays),
            self._clock,
        )
        split = annealing.run(
            start,
            steps * self._params.ops_of_split,
            seed,
            heats[seed % len(heats)],
            math.ceil(candidate.rest / self._tick(candidate)),
        )
        is_worse = known is not None and split and split.makespan >= known.makespan
        if split is None or not split.fits or is_worse:
            return None
        self._under_orders[candidate.index] = split
        arrays = self.quick.arrays(candidate.configuration, split.boundaries)
        return arrays, self._orders.schedule_under(arrays, split.order)

    def has_other_schedules(self, candidate: Candidate) -> bool:
        """Whether schedules are allowed that no fixed order says, or memory depends on times."""
        if self._names is None and not self._is_runtime:
            return True
        assert candidate.arrays is not None
        return not orders_decide_memory(candidate.arrays) or (
            not self._orders.first_orders(candidate.arrays)
        )

    def rules(self, candidate: Candidate) -> tuple[WarmUpRule, ...]:
        """Return the rules by which splits of a candidate are compared: few where it is large."""
        if candidate.configuration.num_ops < self._params.least_swept:
            return self._params.rules
        rules = (WarmUpRule(), replace(candidate.rule or WarmUpRule(), passes=0))
        return tuple(dict.fromkeys(rules))

    def improved(
        self, candidate: Candidate, steps: int, seed: int = 0
    ) -> PipelineArrays | None:
        """Return a split whose quick schedule is shorter than that of the candidate's split.

        None where none was found.

        `steps`, `seed`: splits that are rated: the same ones on every machine while there is time.
        """
        rules, best = self.rules(candidate), _BestSplit()

        def rate(split: Boundaries) -> int | None:
            ticks = self._rated(candidate, split, rules, best.ticks)
            best.offer(split, ticks)
            return ticks

        heats = self._params.heats
        heat = HEAT if seed == 0 else heats[seed % len(heats)]
        self._anneal(candidate, rate, _Walk(steps, seed, heat, len(rules)))
        if best.split is None or best.split == candidate.boundaries:
            return None
        return self.quick.arrays(candidate.configuration, best.split)

    def improved_by_sweeps(
        self, candidate: Candidate, steps: int, seed: int
    ) -> tuple[PipelineArrays, QuickSchedule] | None:
        """Return the split of the best sweep of those that rules rate close to the candidate's.

        None where no sweep is better than the candidate's schedule.

        `steps`, `seed`: as of `improved`.
        """
        assert candidate.arrays is not None
        assert candidate.step.reached is not None
        rules, tick = self.rules(candidate), self._tick(candidate)
        own = self.quick.makespan(candidate.arrays, rules)
        if own is None:
            return None
        limit, reached = own * self._params.close_by_rules, candidate.step.reached
        best: tuple[PipelineArrays, QuickSchedule] | None = None

        def rate(split: Boundaries) -> int | None:
            nonlocal best, reached
            arrays = self.quick.arrays(candidate.configuration, split)
            ticks = self._rated(candidate, split, rules, own)
            if ticks is None or ticks > limit or arrays.bound * tick >= reached:
                return ticks
            sweep = self.quick.swept(
                arrays, None, self._params.sweep_of_split, self._clock
            )
            if sweep is None:
                return ticks
            if sweep.makespan < reached:
                best, reached = (arrays, sweep), sweep.makespan
            # The walk goes on by what sweeps reach.
            return min(ticks, round(Fraction(sweep.makespan) / tick))

        heat, schedules = self._params.heats[0], self._params.sweep_of_split
        self._anneal(candidate, rate, _Walk(steps, seed, heat, schedules))
        return best

    def _anneal(
        self,
        candidate: Candidate,
        rate: Callable[[Boundaries], int | None],
        walk: _Walk,
    ) -> None:
        # Each split is rated once. `rate` keeps what it looks for.
        ratings: dict[Boundaries, int | None] = {}

        def rate_once(counts: IntArray) -> int | None:
            split = boundaries_of(counts)
            if split not in ratings:
                ratings[split] = rate(split)
            return ratings[split]

        assert candidate.arrays is not None
        assert candidate.boundaries is not None
        ops = candidate.configuration.num_ops * walk.schedules
        if self._is_runtime:
            ops = self._orders.num_ops(candidate.arrays)
        steps = walk.steps * self._params.most_split_ops // ops
        steps = min(walk.steps, max(10, steps))
        expect(ops * steps)
        search = LayerSearch(
            rate_once, steps + walk.seed, steps, heat=walk.heat, by_clock=False
        )
        start = np.diff(np.array(candidate.boundaries))[None]
        enough = math.ceil(candidate.rest / self._tick(candidate))
        search.run(start, self._clock, enough)

    def _rated(
        self,
        candidate: Candidate,
        split: Boundaries,
        rules: Sequence[WarmUpRule],
        best: int | None,
    ) -> int | None:
        # What is proved to be far worse takes no schedule.
        arrays = self.quick.arrays(candidate.configuration, split)
        if self._is_runtime:
            return self._orders.makespan(arrays)
        bound = arrays.bound
        if best is not None and bound > best * self._params.far_worse:
            return bound
        if self._names is None:
            return self.quick.makespan(arrays, rules)
        schedule = self.quick.named(arrays, self._names)
        return schedule and round(Fraction(schedule.makespan) / self._tick(candidate))

    def swept(
        self, arrays: PipelineArrays, start: IntArray | None, steps: int
    ) -> QuickSchedule | None:
        """Return the schedule of a sweep of a split, None where nothing fits the memory."""
        if start is None:
            rules = tuple(self._params.justified(rule) for rule in self._params.rules)
            best = self.quick.by_rules(arrays, rules)
            if best is not None and best.rule is not None:
                start = start_by_rule(arrays, best.rule)
        return self.quick.swept(arrays, start, steps, self._clock)

    def list_others(self, candidate: Candidate, goodput: float) -> None:
        """List the splits of a candidate that may exceed a goodput, each with a quick schedule.

        They become its `others`, None if there are too many; a better one is exchanged for its own
        split.

        `goodput`: that of the winner; 0 for all that fit.
        """
        tick, ticks = self._tick(candidate), NEVER
        if goodput:
            limit = Fraction(candidate.samples_per_time / goodput)
            ticks = math.ceil(limit / tick - Fraction(1, 10**6))
            if candidate.samples_per_time / float(ticks * tick) > goodput:
                ticks += 1
        candidate.is_listed = True
        splits = SplitBounds(self.builder, candidate.configuration).below(ticks)
        rivals = []
        for split in splits or ():
            # Without any plan the search goes on when its time is up.
            if goodput and self._clock.is_over:
                candidate.is_listed = False
                return
            rival = (
                None
                if split == candidate.boundaries
                else self._other(candidate, split, ticks)
            )
            if rival is not None:
                rivals.append(rival)
        if splits is not None:
            candidate.rest = ticks * tick if goodput else math.inf
            candidate.others = rivals

    def _other(
        self, candidate: Candidate, split: Boundaries, limit: int
    ) -> Candidate | None:
        arrays = self.quick.arrays(candidate.configuration, split)
        bound = arrays.bound
        if bound >= limit or arrays.stages.lacks_room().any():
            return None
        rate, step = candidate.samples_per_time, StepTime(bound * self._tick(candidate))
        about = candidate.index, candidate.configuration, rate, candidate.efficiency
        rival = Candidate(*about, step, Level.SHAPED, parent=candidate)
        rival.show(split, None, arrays)
        rival.take(self.schedule(arrays, self.rules(candidate)))
        if (candidate.step.reached or math.inf) <= (rival.step.reached or math.inf):
            rival.start = None
        return rival

    def _tick(self, candidate: Candidate) -> Fraction:
        return self.builder.layers(candidate.configuration.microbatch_size).tick
