"""Step time parameters, gradient statistics and measured steps of data-parallel training."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ppsolve.models.core.arrays import (
    Floats,
    Quantity,
    allocation,
    as_array,
    as_number,
    broadcast,
    plain,
)
from ppsolve.models.core.problem import IntArray
from ppsolve.models.documents.errors import ErrorCode, InputError

LEAST_TIME = 1e-8
"""What AdaptDL's model adds in place of no network and of no further replicas (its 1e-8)."""

LEAST_COMPUTE = 1e-30
"""Least time of a sample: a shorter one is taken for a mistake, and goodput stays finite."""


@dataclass(frozen=True)
class PerfParams:
    """Step times of a data-parallel job; times in seconds or any other unit.

    Parameters
    ----------
    alpha_c, beta_c : float
        Forward and backward of a micro-batch of b samples take ``alpha_c + beta_c * b``.
    alpha_n, beta_n : float
        Gradient exchange over several nodes, and the time of each replica beyond the second.
    alpha_r, beta_r : float
        The same inside one node.
    gamma : float
        Overlap of the two, from 1 (one after the other) on; infinity would be the longer one.

    Raises
    ------
    InputError
        Names the parameter that is negative, not finite or (gamma) below 1.
    """

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float

    def __post_init__(self) -> None:
        """Check the numbers, and keep them as floats."""
        for name in self.__dataclass_fields__:
            object.__setattr__(self, name, as_number(name, getattr(self, name)))
        as_number("gamma", self.gamma, least=1)
        compute = self.alpha_c + self.beta_c
        if compute < LEAST_COMPUTE:
            text = f"expected alpha_c + beta_c >= {LEAST_COMPUTE:g}, got {compute:g}"
            raise InputError(text, field="alpha_c", code=ErrorCode.RANGE)

    def __iter__(self) -> Iterator[float]:
        """Yield the seven numbers in the order of the fields."""
        return iter(astuple(self))

    def __len__(self) -> int:
        """Return the number of parameters, 7."""
        return len(self.__dataclass_fields__)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        """Return the seven numbers as an array."""
        return np.array(astuple(self), dtype=dtype)

    def accum_time(self, atomic_bsz: ArrayLike) -> Quantity:
        """Return the time of forward and backward of one micro-batch per replica."""
        return plain(self._accum(as_array("atomic_bsz", atomic_bsz, above=0)))

    def network_time(self, num_nodes: ArrayLike, num_replicas: ArrayLike) -> Quantity:
        """Return the time of the gradient exchange.

        Parameters
        ----------
        num_nodes, num_replicas : int or int[...]
            As for `step_time`.

        Returns
        -------
        float or float64[...]
            In the unit of the parameters.
        """
        return plain(self._network(*allocation(num_nodes, num_replicas)))

    def optim_time(
        self, num_nodes: ArrayLike, num_replicas: ArrayLike, atomic_bsz: ArrayLike
    ) -> Quantity:
        """Return the time of a step that exchanges gradients: the gamma-norm of both times.

        Parameters
        ----------
        num_nodes, num_replicas, atomic_bsz : number or array
            As for `step_time`.

        Returns
        -------
        float or float64[...]
            In the unit of the parameters.
        """
        return plain(
            self._optim(*configuration(num_nodes, num_replicas, atomic_bsz, 0)[:3])
        )

    def step_time(
        self,
        num_nodes: ArrayLike,
        num_replicas: ArrayLike,
        atomic_bsz: ArrayLike,
        accum_steps: ArrayLike,
    ) -> Quantity:
        """Return the time of all accumulation steps and the step that exchanges gradients.

        Parameters
        ----------
        num_nodes, num_replicas : array_like
            Whole numbers, 1 <= nodes <= replicas.
        atomic_bsz : array_like
            Samples per micro-batch and replica, above 0.
        accum_steps : array_like
            Micro-batches before the one that exchanges gradients, from 0 on.

        Returns
        -------
        float or float64[...]
            ``accum_steps * T_accum + T_optim`` (Pollux, OSDI 2021), in the unit of the parameters.

        Raises
        ------
        InputError
            Names the argument and the place of the first value that cannot be used.
        """
        nodes, replicas, atomic, accum = configuration(
            num_nodes, num_replicas, atomic_bsz, accum_steps
        )
        return plain(accum * self._accum(atomic) + self._optim(nodes, replicas, atomic))

    def _accum(self, atomic: Floats) -> Floats:
        return self.alpha_c + self.beta_c * atomic

    def _network(self, nodes: IntArray, replicas: IntArray) -> Floats:
        local_base = np.where(replicas > 1, self.alpha_r, LEAST_TIME)
        local_slope = np.where(replicas > 1, self.beta_r, LEAST_TIME)
        base = np.where(nodes > 1, self.alpha_n, local_base)
        slope = np.where(nodes > 1, self.beta_n, local_slope)
        return base + slope * further_replicas(replicas)

    def _optim(self, nodes: IntArray, replicas: IntArray, atomic: Floats) -> Floats:
        return gamma_norm(
            self._accum(atomic), self._network(nodes, replicas), self.gamma
        )


@dataclass(frozen=True)
class GradParams:
    """Gradient statistics: squared norm of the mean gradient, and its variance.

    Raises
    ------
    InputError
        Names the one that is negative or not finite.
    """

    sqr: float
    var: float

    def __post_init__(self) -> None:
        """Check the numbers, and keep them as floats."""
        for name in self.__dataclass_fields__:
            number = as_number(name, getattr(self, name), most=sys.float_info.max)
            object.__setattr__(self, name, number)

    def __iter__(self) -> Iterator[float]:
        """Yield ``sqr``, then ``var``."""
        return iter(astuple(self))

    @property
    def normalised(self) -> GradParams:
        """The same ratio, the larger one 1; without any gradient ``sqr`` is 1."""
        largest = max(self.sqr, self.var)
        return (
            GradParams(self.sqr / largest, self.var / largest)
            if largest
            else GradParams(1, 0)
        )

    def efficiency(self, scale: ArrayLike) -> Quantity:
        """Return the progress per sample, relative to training at the initial batch size.

        The published gain (var + sqr) / (var / scale + sqr) (1 for 0 / 0), divided by `scale`,
        which is the batch size in initial batch sizes, above 0.

        Raises
        ------
        InputError
            Names the place of the first `scale` that cannot be used.
        """
        scales = as_array("scale", scale, above=0, most=sys.float_info.max)
        sqr, var = self.normalised
        return plain((var + sqr) / (var + sqr * scales))


def configuration(
    num_nodes: ArrayLike,
    num_replicas: ArrayLike,
    atomic_bsz: ArrayLike,
    accum_steps: ArrayLike,
) -> tuple[IntArray, IntArray, Floats, Floats]:
    """Return the arguments of `PerfParams.step_time`, checked and broadcast to one shape.

    Nodes and replicas become int64[...], the other two float64[...]. An `InputError` names the
    argument that is out of range or does not broadcast.
    """
    nodes, replicas = allocation(num_nodes, num_replicas)
    atomic = as_array("atomic_bsz", atomic_bsz, above=0)
    accum = as_array("accum_steps", accum_steps)
    nodes, replicas, atomic, accum = broadcast(
        num_nodes=nodes, num_replicas=replicas, atomic_bsz=atomic, accum_steps=accum
    )
    return nodes, replicas, atomic, accum


def gamma_norm(a: ArrayLike, b: ArrayLike, gamma: float) -> Floats:
    """Return (a^gamma + b^gamma)^(1 / gamma): the time of two tasks that partly overlap.

    It is between the longer time and, at gamma = 1, the sum; no power overflows on the way.

    `a`, `b`: times >= 0, in one unit; they broadcast.
    """
    longer, shorter = np.maximum(a, b), np.minimum(a, b)
    share = shorter / np.where(longer > 0, longer, 1.0)
    return longer * (1 + share**gamma) ** (1 / gamma)


def further_replicas(replicas: NDArray[Any]) -> Floats:
    """Return the factor of beta_n and beta_r: replicas beyond the second, at least 1e-8."""
    return np.maximum(replicas - 2, LEAST_TIME)


@dataclass(frozen=True, eq=False)
class Observations:
    """Measured steps, one entry each.

    `num_nodes`, `num_replicas`: whole numbers, 1 <= nodes <= replicas.
    `atomic_bsz`: micro-batch size per replica, above 0.
    `accum_step_time`, `optim_step_time`: time of a step without and with gradient
        exchange, above 0.
    Raises `InputError`: names the argument, the place of the first value that cannot be
        used, and the expected value.
    """

    num_nodes: Floats
    num_replicas: Floats
    atomic_bsz: Floats
    accum_step_time: Floats
    optim_step_time: Floats

    def __post_init__(self) -> None:
        """Check the columns, and keep them as arrays."""
        for field in fields(self):
            is_count = field.name.startswith("num")
            values = as_array(
                field.name,
                getattr(self, field.name),
                above=None if is_count else 0,
                least=float(is_count),
                whole=is_count,
            )
            if values.ndim != 1:
                raise InputError(
                    "expected a list of numbers", field=field.name, code=ErrorCode.TYPE
                )
            object.__setattr__(self, field.name, values)
        self._check_together()

    def _check_together(self) -> None:
        if not len(self):
            raise InputError(
                "expected at least one observation, got none",
                field="num_nodes",
                code=ErrorCode.LENGTH,
            )
        for field in fields(self):
            length = len(getattr(self, field.name))
            if length != len(self):
                text = f"expected {len(self)} values like num_nodes, got {length}"
                raise InputError(text, field=field.name, code=ErrorCode.LENGTH)
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

    `params`: the parameters, after the prior on nodes that were not observed.
    `objective`: the minimised function at `raw_params`.
    `raw_params`: the minimum, before that prior.
    `residuals`: float64[n, 2], predicted over observed accumulation and optimizer step
        time, as logarithms, in the given order.
    `fixed`: parameters that were not fitted, and why.
    `warnings`: parameters that the observations do not identify.
    `converged`: whether the best descent came to rest.
    """

    params: PerfParams
    objective: float
    raw_params: PerfParams
    residuals: Floats
    fixed: Mapping[str, str]
    warnings: tuple[str, ...]
    converged: bool
