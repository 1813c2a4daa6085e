"""Goodput of pipeline jobs: the step time of real schedules in the goodput model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ppsolve.models.errors import InputError
from ppsolve.models.goodput import Floats, GoodputModel, as_number, refuse
from ppsolve.models.pipeline_choice import Interval, PipelineChoice, candidates
from ppsolve.models.plan import UNITS_PER_SECOND
from ppsolve.models.problem import IntArray
from ppsolve.models.schedule_curve import ScheduleCurve, like, whole_numbers

__all__ = ["Interval", "PipelineChoice", "PipelineEvaluation", "PipelineGoodput"]

Sync = Literal["published", "in_schedule"]


@dataclass(frozen=True)
class PipelineEvaluation:
    """What configurations are worth; scalars, or arrays of one shape.

    Parameters
    ----------
    batch_size : int
        Samples per step: replicas x micro-batches x micro-batch size.
    step_time : Interval
        In the time unit of the curves; `high` is that of the schedules.
    throughput, goodput : Interval
        Samples per time unit of the model; `low` is that of the schedules.
    efficiency : float
        Statistical efficiency at the batch size.
    extrapolated : bool
        Whether no schedule with so many micro-batches was measured: then `low` is an estimate.
    """

    batch_size: Any
    step_time: Interval
    throughput: Interval
    efficiency: Any
    goodput: Interval
    extrapolated: Any


@dataclass(frozen=True)
class PipelineGoodput:
    """Goodput of data-parallel copies of one pipeline.

    With M micro-batches of size b, makespan m and steady time tau per micro-batch, the last
    micro-batch takes c + tau = m - (M - 1) tau, c = m - M tau, and overlaps with the sync of the
    copies as the step of a single stage does:

        T_step = (M - 1) tau + ((c + tau)^gamma + T_net^gamma)^(1 / gamma)

    For one stage (m = M T_acc) this is the published model with M - 1 accumulation steps; for GPipe
    on S equal stages with B = 2F, without latency and with gamma = 1, it is the published
    3 (S - 1 + M) F + T_net of pipelined jobs.

    The bound on m and the bound tau_b <= tau give a lower bound on T_step: it is m + g(m - (M - 1)
    tau) with g(x) = (x^gamma + T_net^gamma)^(1 / gamma) - x, and for gamma >= 1 the slope of g is
    between -1 and 0, so T_step decreases neither in m nor in tau.

    A schedule may take less than (M - 1) tau, if few micro-batches run faster than many (memory
    that only many of them fill). Then c + tau is taken as 0: nothing is left to overlap, and the
    sync is added in full, which is the most that the formula can give for this makespan.

    Parameters
    ----------
    model : GoodputModel
        Sync time and statistical efficiency. Of the performance parameters only those of T_net
        and gamma are used, the curves stand for the rest.
    curves : mapping of int to ScheduleCurve
        Measured schedules for each micro-batch size b, in one time unit.
    sync : str
        ``published``: T_net is added as above. ``in_schedule``: the measured pipelines have the
        all-reduce of each stage on their comm streams, so T_step is the makespan. These curves
        hold for the number of replicas that their all-reduces were timed for.
    time_unit : str
        Time unit of the model: ns, us, ms or s; any other if the curves have the same.

    Raises
    ------
    InputError
        No curve, a micro-batch size below 1, time units that differ or are unknown.
    """

    model: GoodputModel
    curves: Mapping[int, ScheduleCurve]
    sync: Sync = "published"
    time_unit: str = "s"
    _factor: float = field(init=False, repr=False, default=1.0)

    def __post_init__(self) -> None:
        """Check the curves and sort them by micro-batch size."""
        if self.sync not in {"published", "in_schedule"}:
            raise InputError(
                f'expected "published" or "in_schedule", got "{self.sync}"', field="sync"
            )
        if not self.curves:
            raise InputError("expected a curve for at least one micro-batch size", field="curves")
        sizes = whole_numbers("curves", list(self.curves)).tolist()
        curves = dict(sorted(zip(sizes, self.curves.values(), strict=True)))
        object.__setattr__(self, "curves", curves)
        object.__setattr__(self, "_factor", self._units_per_unit())

    def _units_per_unit(self) -> float:
        """Return how many time units of the curves one time unit of the model has."""
        units = sorted({curve.time_unit for curve in self.curves.values()})
        if len(units) > 1:
            raise InputError(
                f"expected one time unit for all, got {', '.join(units)}", field="curves"
            )
        if units[0] == self.time_unit:
            return 1.0
        for unit in (units[0], self.time_unit):
            if unit not in UNITS_PER_SECOND:
                known = ", ".join(UNITS_PER_SECOND)
                raise InputError(f'expected one of {known}, got "{unit}"', field="time_unit")
        return UNITS_PER_SECOND[units[0]] / UNITS_PER_SECOND[self.time_unit]

    def step_time(
        self, num_nodes: Any, num_replicas: Any, atomic_bsz: Any, microbatches: Any
    ) -> Interval:
        """Return the time of one step; parameters and errors as for `evaluate`.

        Returns
        -------
        Interval
            In the time unit of the curves; `high` is that of the schedules.
        """
        nodes, replicas, sizes, counts = self._configurations(
            num_nodes, num_replicas, atomic_bsz, microbatches
        )
        found = self._step_times(self._network_time(nodes, replicas), sizes, counts)
        return _like(found, num_nodes, num_replicas, atomic_bsz, microbatches)

    def evaluate(
        self, num_nodes: Any, num_replicas: Any, atomic_bsz: Any, microbatches: Any
    ) -> PipelineEvaluation:
        """Return throughput, efficiency and goodput of configurations.

        Parameters
        ----------
        num_nodes : int or array of int
            Nodes that the copies of a stage are spread over, so that their sync leaves a node
            where this is above 1; at most `num_replicas`.
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
            Parameters out of range, or a batch size below the initial one.
        """
        given = (num_nodes, num_replicas, atomic_bsz, microbatches)
        nodes, replicas, sizes, counts = self._configurations(*given)
        found = self._evaluated(replicas, self._network_time(nodes, replicas), sizes, counts)
        batch, least = found.batch_size, self.model.init_batch_size
        expected = f"replicas x micro-batch size x micro-batches of at least {least:g}"
        refuse("microbatches", batch, batch < least, expected)
        return PipelineEvaluation(
            batch_size=like(found.batch_size.astype(np.int64), *given),
            step_time=_like(found.step_time, *given),
            throughput=_like(found.throughput, *given),
            efficiency=like(found.efficiency, *given),
            goodput=_like(found.goodput, *given),
            extrapolated=like(found.extrapolated, *given),
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

        Judged by the goodput of the schedules. Batches are from the initial size to
        `max_batch_size`, both real limits.

        Parameters
        ----------
        num_nodes, num_replicas : int or array of int
            As for `evaluate`.
        max_batch_size : float
            Largest batch.
        microbatches : array of int, optional
            Numbers of micro-batches to choose from. By default every number up to 64 and eight
            per doubling beyond, those that were measured, and for each number of replicas the
            least and the largest one that the limits allow.

        Returns
        -------
        PipelineChoice
            Arrays in the shape of `num_nodes` and `num_replicas` broadcast together; scalars for
            scalars; 0 where nothing is allowed. Ties go to the smaller micro-batch.

        Raises
        ------
        InputError
            Parameters out of range, or a largest batch below the initial one.
        """
        nodes, replicas = self._placement(num_nodes, num_replicas)
        return self._best(nodes, replicas, max_batch_size, microbatches)

    def table(
        self,
        num_nodes: Any,
        num_replicas: Any,
        *,
        max_batch_size: float,
        microbatches: Any = None,
    ) -> PipelineChoice:
        """Return `optimize` for every pair of n nodes and k replicas, arrays of shape [n, k].

        Parameters
        ----------
        num_nodes, num_replicas : array of int
            The n and k numbers; the answer is 0 where there are more nodes than replicas.
        max_batch_size, microbatches
            As for `optimize`.
        """
        nodes, replicas = _broadcast(
            num_nodes=np.atleast_1d(whole_numbers("num_nodes", num_nodes))[:, None],
            num_replicas=np.atleast_1d(whole_numbers("num_replicas", num_replicas))[None, :],
        )
        return self._best(nodes, replicas, max_batch_size, microbatches)

    def _best(
        self, nodes: IntArray, replicas: IntArray, max_batch_size: Any, microbatches: Any
    ) -> PipelineChoice:
        largest = as_number("max_batch_size", max_batch_size, above=0)
        least = self.model.init_batch_size
        if largest < least:
            raise InputError(
                f"expected at least the initial batch size {least:g}, got {largest:g}",
                field="max_batch_size",
            )
        if microbatches is not None:
            microbatches = np.unique(whole_numbers("microbatches", microbatches))
        allowed = nodes <= replicas
        network = self._network_time(np.where(allowed, nodes, 1), replicas)
        # Many pairs share the replicas and the sync time; each such case is solved once.
        cases, place = np.unique(replicas + 1j * network, return_inverse=True)
        copies, syncs = cases.real.astype(np.int64), cases.imag
        size, count = self._chosen(copies[:, None], syncs[:, None], largest, microbatches)
        some = np.flatnonzero(size)
        found = self._evaluated(copies[some], syncs[some], size[some], count[some])
        place = np.where(allowed, place.reshape(nodes.shape), len(cases))

        def spread(values: Any) -> Any:
            # One case more: what is not allowed.
            table = np.zeros(len(cases) + 1, dtype=values.dtype)
            table[some] = values
            return like(table[place], place)

        return PipelineChoice(
            goodput=Interval(spread(found.goodput.low), spread(found.goodput.high)),
            atomic_bsz=spread(size[some]),
            microbatches=spread(count[some]),
            batch_size=spread(found.batch_size.astype(np.int64)),
            extrapolated=spread(found.extrapolated),
        )

    def _chosen(
        self, replicas: IntArray, network: Floats, largest: float, given: IntArray | None
    ) -> tuple[IntArray, IntArray]:
        """Return the best micro-batch size and count of each case, 0 where none is allowed."""
        rows = np.arange(len(replicas))
        best = np.zeros(len(rows))
        chosen_size, chosen_count = np.zeros((2, len(rows)), dtype=np.int64)
        for size, curve in self.curves.items():
            local = replicas.astype(np.float64) * size
            limits = self.model.init_batch_size / local, largest / local
            counts, fits = candidates(curve, *limits, given)
            if not counts.size:
                continue
            batch = local * counts
            speed = batch / self._reached(curve, network, counts)
            value = np.where(fits, speed * self._efficiency(np.where(fits, batch, 0.0)), 0.0)
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
        known = ", ".join(map(str, self.curves))
        unknown = ~np.isin(sizes, list(self.curves))
        expected = f"a micro-batch size that has a curve ({known})"
        refuse("atomic_bsz", sizes.astype(np.float64), unknown, expected)
        nodes, replicas = self._placement(num_nodes, num_replicas)
        return _broadcast(
            num_nodes=nodes,
            num_replicas=replicas,
            atomic_bsz=sizes,
            microbatches=whole_numbers("microbatches", microbatches),
        )

    def _placement(self, num_nodes: Any, num_replicas: Any) -> tuple[IntArray, ...]:
        nodes, replicas = _broadcast(
            num_nodes=whole_numbers("num_nodes", num_nodes),
            num_replicas=whole_numbers("num_replicas", num_replicas),
        )
        expected = "at most as many nodes as replicas"
        refuse("num_nodes", nodes.astype(np.float64), nodes > replicas, expected)
        return nodes, replicas

    def _network_time(self, nodes: IntArray, replicas: IntArray) -> Floats:
        """Return the sync time in the unit of the curves, 0 where it is part of the schedules."""
        if self.sync == "in_schedule":
            return np.zeros(nodes.shape)
        return np.asarray(self.model.network_time(nodes, replicas)) * self._factor

    def _evaluated(
        self, replicas: IntArray, network: Floats, sizes: IntArray, counts: IntArray
    ) -> PipelineEvaluation:
        """Evaluate arrays of `sizes` and `counts`, of one shape that the others broadcast to."""
        batch = replicas.astype(np.float64) * sizes * counts
        step, efficiency = self._step_times(network, sizes, counts), self._efficiency(batch)
        samples = batch * self._factor
        with np.errstate(divide="ignore"):
            throughput = Interval(samples / step.high, samples / step.low)
        extrapolated = np.zeros(sizes.shape, dtype=np.bool_)
        for size, curve in self.curves.items():
            chosen = sizes == size
            extrapolated[chosen] = curve.is_extrapolated(counts[chosen])
        return PipelineEvaluation(
            batch_size=batch,
            step_time=step,
            throughput=throughput,
            efficiency=efficiency,
            goodput=Interval(throughput.low * efficiency, throughput.high * efficiency),
            extrapolated=extrapolated,
        )

    def _efficiency(self, batch: Floats) -> Floats:
        """Return the efficiency, that of the initial batch size for smaller ones."""
        return np.asarray(self.model.efficiency(np.maximum(batch, self.model.init_batch_size)))

    def _step_times(self, network: Floats, sizes: IntArray, counts: IntArray) -> Interval:
        low, high = np.zeros(sizes.shape), np.zeros(sizes.shape)
        for size, curve in self.curves.items():
            chosen = sizes == size
            if chosen.any():
                high[chosen] = self._reached(curve, network[chosen], counts[chosen])
                low[chosen] = self._bound(curve, network[chosen], counts[chosen])
        # The two are equal but for rounding where the schedule is optimal.
        return Interval(np.minimum(low, high), high)

    def _reached(self, curve: ScheduleCurve, network: Floats, counts: IntArray) -> Floats:
        makespan: Floats = curve.makespan(counts)
        if self.sync == "in_schedule":
            return makespan
        steady: Floats = (counts - 1) * np.float64(curve.slope)
        return self._with_sync(makespan, steady, network)

    def _bound(self, curve: ScheduleCurve, network: Floats, counts: IntArray) -> Floats:
        bound: Floats = curve.bound(counts)
        if self.sync == "in_schedule":
            return bound
        steady: Floats = (counts - 1) * np.float64(curve.bound_slope)
        return self._with_sync(bound, steady, network)

    def _with_sync(self, makespan: Floats, steady: Floats, network: Floats) -> Floats:
        steady = np.minimum(steady, makespan)
        rest, gamma = makespan - steady, self.model.perf.gamma
        longer = np.maximum(rest, network)
        # Scaled by the longer one, no power overflows.
        share = np.minimum(rest, network) / np.where(longer > 0, longer, 1.0)
        total: Floats = steady + longer * (1.0 + share**gamma) ** (1.0 / gamma)
        return total


def _broadcast(**arrays: IntArray) -> tuple[IntArray, ...]:
    try:
        return tuple(np.broadcast_arrays(*arrays.values()))
    except ValueError:
        shapes = ", ".join(str(array.shape) for array in arrays.values())
        raise InputError(
            f"expected shapes that broadcast together, got {shapes}", field=", ".join(arrays)
        ) from None


def _like(interval: Interval, *given: Any) -> Interval:
    return Interval(like(interval.low, *given), like(interval.high, *given))
