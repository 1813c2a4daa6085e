"""Goodput of pipeline jobs: the step time of real schedules in the goodput model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ppsolve.models.core.arrays import (
    Floats,
    allocation,
    as_number,
    broadcast,
    plain,
    refuse,
    whole_numbers,
)
from ppsolve.models.core.problem import BoolArray, IntArray
from ppsolve.models.core.timescale import UNITS_PER_SECOND
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.studies.goodput.params import gamma_norm
from ppsolve.solver.studies.goodput.curve import ScheduleCurve, at_most
from ppsolve.solver.studies.goodput.model import GoodputModel
from ppsolve.solver.studies.goodput.step import Interval


@dataclass(frozen=True)
class PipelineEvaluation:
    """Worth of configurations; scalars, or arrays of one shape.

    `batch_size`: samples per step: replicas x micro-batches x micro-batch size.
    `step_time`: in the time unit of the curves; `high` is that of the schedules.
    `throughput`, `goodput`: samples per time unit of the model; `low` is that of the
        schedules.
    `efficiency`: statistical efficiency at the batch size.
    `extrapolated`: whether there are more micro-batches than were measured; the
        schedules' ends are estimates then.
    """

    batch_size: Any
    step_time: Interval
    throughput: Interval
    efficiency: Any
    goodput: Interval
    extrapolated: Any


@dataclass(frozen=True)
class PipelineChoice:
    """The best configurations; scalars, or arrays of one shape; all 0 where none is allowed.

    `goodput`: samples per time unit of the model; the configuration with the largest
        `low` is chosen.
    `atomic_bsz`, `microbatches`, `batch_size`: micro-batch size, micro-batches per
        replica and step, and samples per step.
    `extrapolated`: whether there are more micro-batches than were measured: then `low`
        is an estimate.
    """

    goodput: Interval
    atomic_bsz: Any
    microbatches: Any
    batch_size: Any
    extrapolated: Any


def _candidates(
    curve: ScheduleCurve, low: Floats, high: Floats, choices: IntArray | None
) -> tuple[IntArray, BoolArray]:
    # Return numbers of micro-batches to try (multiples of `ScheduleCurve.multiple`), int64[cases,
    # k], and which of them are within the limits. A measured one stands in for one that is not
    # allowed.
    unit = curve.multiple
    first = unit * np.ceil(low / unit).astype(np.int64)
    last = unit * np.floor(high / unit).astype(np.int64)
    if choices is None:
        grid = _grid(int(last.max(initial=0)), curve)
        limits = [first, last]
    else:
        grid = choices[choices % unit == 0]
        limits = []
    counts = np.concatenate(
        [np.broadcast_to(grid, (len(low), len(grid))), *limits], axis=1
    )
    fits = (counts >= np.maximum(first, unit)) & (counts <= last)
    return np.where(fits, counts, curve.microbatches[0]), fits


def _grid(limit: int, curve: ScheduleCurve) -> IntArray:
    # Every number up to 64, eight per doubling beyond (neighbours differ by 9 %), and all measured.
    unit, dense, steps = curve.multiple, 64, 8
    doublings = max(0.0, np.log2(max(limit, 1) / dense))
    powers = np.arange(1, int(doublings * steps) + 1) / steps
    beyond = np.round(dense * 2.0**powers).astype(np.int64) // unit * unit
    every = np.arange(unit, min(dense, limit) + 1, unit)
    measured = np.array(
        [count for count in curve.microbatches if count <= limit], dtype=np.int64
    )
    return np.unique(np.concatenate([every, beyond, measured]))


@dataclass(frozen=True)
class PipelineGoodput:
    """Goodput of data-parallel copies of one pipeline.

    With M micro-batches of size b, makespan m and steady time tau per micro-batch, the last
    micro-batch takes c + tau = m - (M - 1) tau, c = m - M tau, and overlaps with the sync of the
    copies as the step of a single stage does:

        T_step = (M - 1) tau + ((c + tau)^gamma + T_net^gamma)^(1 / gamma)

    For one stage (m = M T_acc) this is the published model with M - 1 accumulation steps; for GPipe
    on S equal stages with B = 2F, without latency and with gamma = 1, it is the published 3 (S - 1
    + M) F + T_net of pipelined jobs.

    Where tau was not seen to repeat (`SteadyState.repeats`), the sync is added to m in full, which
    is the most that the formula gives for any tau. The same holds where a schedule takes less than
    (M - 1) tau, as few micro-batches may run faster than many that fill the memory: c + tau is 0
    then.

    The bound on m and the bound tau_b <= tau give a lower bound on T_step: it is m + g(m - (M - 1)
    tau) with g(x) = (x^gamma + T_net^gamma)^(1 / gamma) - x, and for gamma >= 1 the slope of g is
    between -1 and 0, so T_step decreases neither in m nor in tau.

    Where the measured pipelines have the all-reduce (or reduce-scatter) of each stage on their comm
    streams (`ScheduleCurve.has_sync`), T_step is the makespan. Then the answers are for the number
    of replicas that it was timed for; if the curves do not say, for any.

    Parameters
    ----------
    model : GoodputModel
        Sync time (only T_net and gamma of its step times are used) and statistical efficiency.
    curves : mapping of int to ScheduleCurve
        Measured schedules for each micro-batch size b, in one time unit, all with sync or none.
    time_unit : str
        Time unit of the model: ns, us, ms or s; any other if the curves have the same.

    Raises
    ------
    InputError
        No curve, a micro-batch size below 1, time units that differ or are unknown, sync in some
        schedules only.
    """

    model: GoodputModel
    curves: Mapping[int, ScheduleCurve]
    time_unit: str = "s"
    _factor: float = field(init=False, repr=False, default=1.0)

    def __post_init__(self) -> None:
        """Check the curves and sort them by micro-batch size."""
        if not self.curves:
            raise InputError(
                "expected a curve for at least one micro-batch size",
                field="curves",
                code=ErrorCode.LENGTH,
            )
        sizes = whole_numbers("curves", list(self.curves)).tolist()
        curves = dict(sorted(zip(sizes, self.curves.values(), strict=True)))
        object.__setattr__(self, "curves", curves)
        object.__setattr__(self, "_factor", self._units_per_unit())
        with_sync = [size for size, curve in curves.items() if curve.has_sync]
        if 0 < len(with_sync) < len(curves):
            sizes_with = ", ".join(map(str, with_sync))
            raise InputError(
                "expected all-reduces of gradients in the schedules of all curves or of none, got "
                f"them for the micro-batch sizes {sizes_with} of {', '.join(map(str, curves))}",
                field="curves",
                code=ErrorCode.CONFLICT,
            )

    @property
    def has_sync(self) -> bool:
        """Whether the sync of the copies is part of the schedules."""
        return next(iter(self.curves.values())).has_sync

    def _units_per_unit(self) -> float:
        # One time unit of the model in time units of the curves.
        units = sorted({curve.time_unit for curve in self.curves.values()})
        if len(units) > 1:
            text = f"expected one time unit for all, got {', '.join(units)}"
            raise InputError(text, field="curves", code=ErrorCode.UNIT)
        if units[0] == self.time_unit:
            return 1.0
        for unit in (units[0], self.time_unit):
            if unit not in UNITS_PER_SECOND:
                names = ", ".join(UNITS_PER_SECOND)
                raise InputError(
                    f'expected one of {names}, got "{unit}"',
                    field="time_unit",
                    code=ErrorCode.UNIT,
                )
        return UNITS_PER_SECOND[units[0]] / UNITS_PER_SECOND[self.time_unit]

    def step_time(
        self, num_nodes: Any, num_replicas: Any, atomic_bsz: Any, microbatches: Any
    ) -> Interval:
        """Return the time of one step; errors as for `evaluate`.

        Parameters
        ----------
        num_nodes, num_replicas, atomic_bsz, microbatches : int or int[...]
            As for `evaluate`.

        Returns
        -------
        Interval
            In the time unit of the curves; `high` is that of the schedules.
        """
        nodes, replicas, sizes, counts = self._configurations(
            num_nodes, num_replicas, atomic_bsz, microbatches
        )
        return self._step_times(
            self._network_time(nodes, replicas), sizes, counts
        ).plain()

    def evaluate(
        self, num_nodes: Any, num_replicas: Any, atomic_bsz: Any, microbatches: Any
    ) -> PipelineEvaluation:
        """Return throughput, efficiency and goodput of configurations.

        Parameters
        ----------
        num_nodes : int or array of int
            Nodes that the copies of a stage are spread over; at most `num_replicas`. Above 1 their
            sync leaves a node.
        num_replicas : int or array of int
            Copies K of the pipeline.
        atomic_bsz : int or array of int
            Micro-batch sizes b, of those that have a curve.
        microbatches : int or array of int
            Micro-batches M of each copy in one step; accumulation steps + 1.

        Returns
        -------
        PipelineEvaluation
            Arrays in the shape of the parameters broadcast together; scalars for scalars.

        Raises
        ------
        InputError
            Parameters out of range, a batch size below the initial one, or a number of replicas
            that the sync in the schedules was not timed for.
        """
        nodes, replicas, sizes, counts = self._configurations(
            num_nodes, num_replicas, atomic_bsz, microbatches
        )
        evaluation = self._evaluated(
            replicas, self._network_time(nodes, replicas), sizes, counts
        )
        batch, initial = evaluation.batch_size, self.model.init_batch_size
        expected = (
            f"replicas x micro-batch size x micro-batches of at least {initial:g}"
        )
        refuse("microbatches", batch, batch < initial, expected)
        return PipelineEvaluation(
            batch_size=plain(batch.astype(np.int64)),
            step_time=evaluation.step_time.plain(),
            throughput=evaluation.throughput.plain(),
            efficiency=plain(evaluation.efficiency),
            goodput=evaluation.goodput.plain(),
            extrapolated=plain(evaluation.extrapolated),
        )

    def optimize(
        self,
        num_nodes: Any,
        num_replicas: Any,
        *,
        max_batch_size: float,
        microbatches: Any = None,
    ) -> PipelineChoice:
        """Return the micro-batch size and number of micro-batches with the best goodput.

        It is the goodput of the schedules. Batches are from the initial size to `max_batch_size`.

        Parameters
        ----------
        num_nodes, num_replicas : int or array of int
            As for `evaluate`.
        max_batch_size : float
            Largest batch.
        microbatches : array of int, optional
            Numbers of micro-batches to choose from. By default every number up to 64 and eight per
            doubling beyond, those that were measured, and for each number of replicas the least and
            the largest one that the limits allow.

        Returns
        -------
        PipelineChoice
            Arrays in the shape of `num_nodes` and `num_replicas` broadcast together; scalars for
            scalars; 0 where nothing is allowed. Ties go to the smaller micro-batch.

        Raises
        ------
        InputError
            As for `evaluate`, or a largest batch below the initial one.
        """
        nodes, replicas = allocation(num_nodes, num_replicas)
        held = [curve.holds_for(replicas) for curve in self.curves.values()]
        refuse(
            "num_replicas",
            replicas,
            ~np.any(held, axis=0),
            self._timed_for(self.curves),
        )
        largest = as_number("max_batch_size", max_batch_size, above=0)
        initial = self.model.init_batch_size
        if largest < initial:
            text = (
                f"expected at least the initial batch size {initial:g}, got {largest:g}"
            )
            raise InputError(text, field="max_batch_size", code=ErrorCode.RANGE)
        if microbatches is not None:
            microbatches = np.unique(whole_numbers("microbatches", microbatches))
        network = self._network_time(nodes, replicas)
        # Many pairs share the replicas and the sync time; each such case is solved once.
        cases, inverse = np.unique(replicas + 1j * network, return_inverse=True)
        copies, syncs = cases.real.astype(np.int64), cases.imag
        size, count = self._chosen(
            copies[:, None], syncs[:, None], largest, microbatches
        )
        some = np.flatnonzero(size)
        evaluation = self._evaluated(copies[some], syncs[some], size[some], count[some])

        def spread(values: Any) -> Any:
            answers = np.zeros(len(cases), dtype=values.dtype)
            answers[some] = values
            return plain(answers[inverse.reshape(nodes.shape)])

        return PipelineChoice(
            goodput=Interval(
                spread(evaluation.goodput.low), spread(evaluation.goodput.high)
            ),
            atomic_bsz=spread(size[some]),
            microbatches=spread(count[some]),
            batch_size=spread(evaluation.batch_size.astype(np.int64)),
            extrapolated=spread(evaluation.extrapolated),
        )

    def _chosen(
        self,
        replicas: IntArray,
        network: Floats,
        largest: float,
        choices: IntArray | None,
    ) -> tuple[IntArray, IntArray]:
        rows = np.arange(len(replicas))
        best = np.zeros(len(rows))
        chosen_size, chosen_count = np.zeros((2, len(rows)), dtype=np.int64)
        for size, curve in self.curves.items():
            local = replicas.astype(np.float64) * size
            limits = self.model.init_batch_size / local, largest / local
            counts, fits = _candidates(curve, *limits, choices)
            fits &= curve.holds_for(replicas)
            if not counts.size:
                continue
            batch = local * counts
            speed = batch / self._reached(curve, network, counts)
            value = np.where(
                fits, speed * self._efficiency(np.where(fits, batch, 0.0)), 0.0
            )
            column = value.argmax(axis=1)
            better = value[rows, column] > best
            best = np.where(better, value[rows, column], best)
            chosen_size[better] = size
            chosen_count = np.where(better, counts[rows, column], chosen_count)
        return chosen_size, chosen_count

    def _configurations(
        self, num_nodes: Any, num_replicas: Any, atomic_bsz: Any, microbatches: Any
    ) -> tuple[IntArray, ...]:
        sizes = whole_numbers("atomic_bsz", atomic_bsz)
        names = ", ".join(map(str, self.curves))
        unknown = ~np.isin(sizes, list(self.curves))
        expected = f"a micro-batch size that has a curve ({names})"
        refuse("atomic_bsz", sizes, unknown, expected)
        nodes, replicas = allocation(num_nodes, num_replicas)
        nodes, replicas, sizes, counts = broadcast(
            num_nodes=nodes,
            num_replicas=replicas,
            atomic_bsz=sizes,
            microbatches=whole_numbers("microbatches", microbatches),
        )
        for size, curve in self.curves.items():
            wrong = (sizes == size) & ~curve.holds_for(replicas)
            refuse("num_replicas", replicas, wrong, self._timed_for([size]))
        return nodes, replicas, sizes, counts

    def _timed_for(self, sizes: Iterable[int]) -> str:
        numbers = sorted({self.curves[size].replicas or 0 for size in sizes})
        return f"{' or '.join(map(str, numbers))}, which the sync in the schedules was timed for"

    def _network_time(self, nodes: IntArray, replicas: IntArray) -> Floats:
        # 0 where the sync is part of the schedules.
        if self.has_sync:
            return np.zeros(nodes.shape)
        return np.asarray(self.model.perf.network_time(nodes, replicas)) * self._factor

    def _evaluated(
        self, replicas: IntArray, network: Floats, sizes: IntArray, counts: IntArray
    ) -> PipelineEvaluation:
        batch = replicas.astype(np.float64) * sizes * counts
        step = self._step_times(network, sizes, counts)
        efficiency = self._efficiency(batch)
        throughput = step.rate(batch * self._factor)
        extrapolated = np.zeros(sizes.shape, dtype=np.bool_)
        for size, curve in self.curves.items():
            mask = sizes == size
            extrapolated[mask] = curve.is_extrapolated(counts[mask])
        return PipelineEvaluation(
            batch_size=batch,
            step_time=step,
            throughput=throughput,
            efficiency=efficiency,
            goodput=throughput * efficiency,
            extrapolated=extrapolated,
        )

    def _efficiency(self, batch: Floats) -> Floats:
        return np.asarray(
            self.model.efficiency(np.maximum(batch, self.model.init_batch_size))
        )

    def _step_times(
        self, network: Floats, sizes: IntArray, counts: IntArray
    ) -> Interval:
        low, high = np.zeros(sizes.shape), np.zeros(sizes.shape)
        for size, curve in self.curves.items():
            mask = sizes == size
            if mask.any():
                high[mask] = self._reached(curve, network[mask], counts[mask])
                low[mask] = self._bound(curve, network[mask], counts[mask])
        return Interval(at_most(low, high), high)

    def _reached(
        self, curve: ScheduleCurve, network: Floats, counts: IntArray
    ) -> Floats:
        makespan: Floats = curve.makespan(counts)
        if self.has_sync:
            return makespan
        if curve.steady.repeats:
            steady = (counts - 1) * np.float64(curve.slope)
        else:
            steady = np.where(counts > 1, makespan, 0.0)
        return self._with_sync(makespan, steady, network)

    def _bound(self, curve: ScheduleCurve, network: Floats, counts: IntArray) -> Floats:
        bound: Floats = curve.bound(counts)
        if self.has_sync:
            return bound
        return self._with_sync(
            bound, (counts - 1) * np.float64(curve.bound_slope), network
        )

    def _with_sync(self, makespan: Floats, steady: Floats, network: Floats) -> Floats:
        steady = np.minimum(steady, makespan)
        return steady + gamma_norm(makespan - steady, network, self.model.perf.gamma)
