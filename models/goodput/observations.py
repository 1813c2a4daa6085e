"""Measured steps of a job, and what a fit to them found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from ppsolve.models.core.arrays import Floats, allocation, as_array
from ppsolve.models.documents.errors import InputError
from ppsolve.models.goodput.params import PerfParams


@dataclass(frozen=True, eq=False)
class Observations:
    """Measured steps, one entry each.

    Parameters
    ----------
    num_nodes, num_replicas : array_like [n]
        Whole numbers, 1 <= nodes <= replicas.
    atomic_bsz : array_like [n]
        Micro-batch size per replica, above 0.
    accum_step_time, optim_step_time : array_like [n]
        Time of a step without and with gradient exchange, above 0.

    Raises
    ------
    InputError
        Names the argument, the place of the first value that cannot be used, and what would do.
    """

    num_nodes: Floats
    num_replicas: Floats
    atomic_bsz: Floats
    accum_step_time: Floats
    optim_step_time: Floats

    def __post_init__(self) -> None:
        """Check the columns, and keep them as arrays."""
        for field in fields(self):
            whole = field.name.startswith("num")
            values = as_array(
                field.name,
                getattr(self, field.name),
                above=None if whole else 0,
                least=float(whole),
                whole=whole,
            )
            if values.ndim != 1:
                raise InputError("expected a list of numbers", field=field.name)
            object.__setattr__(self, field.name, values)
        self._check_together()

    def _check_together(self) -> None:
        if not len(self):
            raise InputError("expected at least one observation, got none", field="num_nodes")
        for field in fields(self):
            length = len(getattr(self, field.name))
            if length != len(self):
                raise InputError(
                    f"expected {len(self)} values like num_nodes, got {length}", field=field.name
                )
        allocation(self.num_nodes, self.num_replicas)

    def __len__(self) -> int:
        """Return the number of observations."""
        return len(self.num_nodes)

    def columns(self) -> tuple[Floats, ...]:
        """Return the five columns in the order of the fields."""
        return tuple(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, eq=False)
class Fit:
    """Fitted step times.

    Attributes
    ----------
    params : PerfParams
        The parameters, after the prior on nodes that were not observed.
    objective : float
        What was minimised, at `raw_params`.
    raw_params : PerfParams
        The minimum, before that prior.
    residuals : float64[n, 2]
        Predicted over observed accumulation and optimizer step time, as logarithms, in the
        order the observations were given.
    fixed : mapping
        Which parameters were not fitted, and why.
    warnings : tuple of str
        What the observations do not identify.
    starts : int
        How many starts were descended from.
    converged : bool
        Whether the best descent came to rest.
    """

    params: PerfParams
    objective: float
    raw_params: PerfParams
    residuals: Floats
    fixed: Mapping[str, str]
    warnings: tuple[str, ...]
    starts: int
    converged: bool
