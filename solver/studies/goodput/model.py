"""Goodput of data-parallel training: throughput times statistical efficiency (AdaptDL, Pollux)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ppsolve.models.core.arrays import (
    Amount,
    Floats,
    Quantity,
    allocation,
    as_array,
    as_number,
    plain,
    refuse,
)
from ppsolve.models.core.problem import IntArray
from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.studies.goodput.files import GoodputRow
from ppsolve.models.studies.goodput.params import GradParams, PerfParams, configuration
from ppsolve.solver.studies.goodput.search import BatchLimits, Best, best_configurations


@dataclass(frozen=True)
class GoodputModel:
    """Goodput of one job in all its configurations; immutable, free of shared state.

    All methods broadcast numbers, lists and arrays as numpy does: scalars in, scalars out.

    Parameters
    ----------
    perf : PerfParams
        Step times (or seven numbers in the order of its fields).
    grad : GradParams
        Gradient statistics (or two numbers).
    init_batch_size : float
        Batch size of efficiency 1, the smallest that is allowed.

    Raises
    ------
    InputError
        Names the argument that cannot be used.
    """

    perf: PerfParams
    grad: GradParams
    init_batch_size: float

    def __post_init__(self) -> None:
        """Check the arguments; sequences become parameters."""
        object.__setattr__(self, "perf", _params("perf", PerfParams, self.perf))
        object.__setattr__(self, "grad", _params("grad", GradParams, self.grad))
        size = as_number("init_batch_size", self.init_batch_size, above=0)
        object.__setattr__(
            self, "init_batch_size", int(size) if size == int(size) else size
        )

    def throughput(
        self,
        num_nodes: ArrayLike,
        num_replicas: ArrayLike,
        atomic_bsz: ArrayLike,
        accum_steps: ArrayLike,
    ) -> Quantity:
        """Return samples per unit of time; errors as in `PerfParams.step_time`.

        Parameters
        ----------
        num_nodes, num_replicas, atomic_bsz, accum_steps : number or array
            As for `PerfParams.step_time`.

        Returns
        -------
        float or float64[...]
            Samples per unit of time of the parameters.
        """
        values = configuration(num_nodes, num_replicas, atomic_bsz, accum_steps)
        speed: Floats = _batch(values) / self.perf.step_time(*values)
        return plain(speed)

    def efficiency(self, batch_size: ArrayLike) -> Quantity:
        """Return `GradParams.efficiency` of batch sizes, which are above 0."""
        batch = as_array("batch_size", batch_size, above=0)
        return self.grad.efficiency(batch / self.init_batch_size)

    def evaluate(
        self,
        num_nodes: ArrayLike,
        num_replicas: ArrayLike,
        atomic_bsz: ArrayLike,
        accum_steps: ArrayLike,
    ) -> Quantity:
        """Return the goodput, throughput times efficiency (Pollux, OSDI 2021).

        Parameters
        ----------
        num_nodes, num_replicas, atomic_bsz, accum_steps : number or array
            As for `PerfParams.step_time`.

        Returns
        -------
        float or float64[...]
            Useful samples per unit of time: as many samples of the initial batch size make the same
            progress.

        Raises
        ------
        InputError
            As in `PerfParams.step_time`; or a batch is smaller than the initial batch size.
        """
        values = configuration(num_nodes, num_replicas, atomic_bsz, accum_steps)
        batch = _batch(values)
        expected = (
            "num_replicas * atomic_bsz * (accum_steps + 1) of at least the initial batch size "
            f"{self.init_batch_size:g}"
        )
        refuse("atomic_bsz", batch, batch < self.init_batch_size, expected)
        efficiency = self.grad.efficiency(batch / self.init_batch_size)
        goodput: Floats = batch / self.perf.step_time(*values) * efficiency
        return plain(goodput)

    __call__ = evaluate

    def optimize(
        self,
        num_nodes: ArrayLike,
        num_replicas: ArrayLike,
        max_batch_size: float | None = None,
        atomic_bsz_range: tuple[float | None, float | None] | None = None,
        accumulation: bool = False,
        compat: bool = False,
    ) -> tuple[Quantity, Amount, Amount]:
        """Return the best goodput of each allocation, and how it is reached.

        The best of all whole micro-batch sizes and accumulation steps that the limits allow, to the
        rounding of doubles; of equal ones a smaller batch. (Where accumulation is next to free and
        a micro-batch may have more than 16,384 sizes, not all are tried: the loss is below 1e-4.)

        Parameters
        ----------
        num_nodes, num_replicas : array_like
            Whole numbers, 1 <= nodes <= replicas; they broadcast.
        max_batch_size : float, optional
            Largest batch over all replicas and accumulation steps; the initial one by default.
        atomic_bsz_range : pair of float or None, optional
            Least and greatest micro-batch size; 1 and `max_batch_size` by default.
        accumulation : bool
            Whether accumulation steps may be used. Then one replica takes at least one beyond the
            initial batch size, as the gradient statistics need two micro-batches.
        compat : bool
            The published answer: the best of 50 batch sizes in geometric steps, each with the
            fewest accumulation steps; `max_batch_size` gives way to each replica's least
            micro-batch and to rounding up. If that answer is allowed, the one without `compat` is
            at least as good.

        Returns
        -------
        goodput, atomic_bsz, accum_steps
            float, int, int for scalars; else arrays of the broadcast shape. All are 0 (with
            `compat` only the goodput) where no configuration is allowed.

        Raises
        ------
        InputError
            An impossible allocation, or limits that exclude everything for any allocation.
        """
        limits = BatchLimits.of(
            self.init_batch_size, max_batch_size, atomic_bsz_range, accumulation, compat
        )
        nodes, replicas = allocation(num_nodes, num_replicas)
        best = best_configurations(
            self.perf, self.grad, nodes.ravel(), replicas.ravel(), limits
        )
        best = Best(*(values.reshape(nodes.shape) for values in best))
        atomic, accum = best.atomic.astype(np.int64), best.accum.astype(np.int64)
        return plain(best.goodput), plain(atomic), plain(accum)


def _params(name: str, kind: type[Any], value: Any) -> Any:
    if isinstance(value, kind):
        return value
    names = ", ".join(kind.__dataclass_fields__)
    try:
        numbers = tuple(value)
    except TypeError:
        numbers = ()
    if isinstance(value, str | dict) or len(numbers) != len(kind.__dataclass_fields__):
        text = f"expected {kind.__name__} or the numbers {names}, got {describe(value)}"
        raise InputError(text, field=name, code=ErrorCode.TYPE)
    try:
        return kind(*numbers)
    except InputError as error:
        raise error.about(f"{name}.{error.field}") from None


def best_rows(
    model: GoodputModel, allocations: Sequence[tuple[int, int]], limits: BatchLimits
) -> tuple[GoodputRow, ...]:
    """Return the best configuration of each allocation; errors as in `GoodputModel.optimize`.

    A row has goodput 0 where the limits allow nothing.

    `allocations`: nodes and replicas; at least one pair.
    """
    nodes, replicas = allocation(*np.array(allocations, dtype=np.int64).T)
    best = best_configurations(model.perf, model.grad, nodes, replicas, limits)
    configurations = np.array(
        [nodes, replicas, best.atomic, best.accum], dtype=np.int64
    )
    allowed = best.goodput > 0
    figures = np.zeros((4, len(nodes)))
    figures[:, allowed] = _figures(model, configurations[:, allowed])
    return tuple(
        _row(configuration, reached if fits else None)
        for configuration, reached, fits in zip(
            configurations.T.tolist(), figures.T.tolist(), allowed.tolist(), strict=True
        )
    )


def _batch(configuration: Any) -> Any:
    _, replicas, atomic, accum = configuration
    return replicas * atomic * (accum + 1)


def _figures(model: GoodputModel, configurations: IntArray) -> Floats:
    step_time = model.perf.step_time(*configurations)
    batch = _batch(configurations)
    throughput, efficiency = batch / step_time, model.efficiency(batch)
    return np.array([step_time, throughput, efficiency, throughput * efficiency])


def _row(configuration: Sequence[int], figures: Sequence[float] | None) -> GoodputRow:
    values = (
        *configuration,
        _batch(configuration),
        *(figures or (None, None, None, 0.0)),
    )
    return GoodputRow.model_validate(
        dict(zip(GoodputRow.model_fields, values, strict=True))
    )
