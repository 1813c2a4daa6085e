"""Goodput of data-parallel training: throughput times statistical efficiency (AdaptDL, Pollux)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ppsolve.models.base import MAX_NUMBER, as_decimal, describe
from ppsolve.models.errors import InputError

if TYPE_CHECKING:
    from ppsolve.models.goodput_fit import Fit, fit

__all__ = ["Fit", "GoodputModel", "GradParams", "PerfParams", "fit"]

Floats = NDArray[np.float64]
Quantity = float | Floats
"""A float where all arguments were scalars, else an array of their broadcast shape."""

Count = int | NDArray[np.int64]
"""The same of whole numbers."""

LEAST_TIME = 1e-8
"""What the published model adds in place of no network and of no further replicas."""


@dataclass(frozen=True)
class PerfParams:
    """Step times of a data-parallel job; times in seconds or any other unit.

    Parameters
    ----------
    alpha_c, beta_c : float
        Forward and backward of a micro-batch of b samples take ``alpha_c + beta_c * b``.
    alpha_n, beta_n : float
        Gradient exchange over several nodes, and what each replica beyond the second adds.
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
            try:
                number = float(as_decimal(getattr(self, name)))
            except ValueError as error:
                raise InputError(str(error), field=name) from None
            object.__setattr__(self, name, number)
        if self.gamma < 1:
            raise InputError(f"expected a number >= 1, got {self.gamma:g}", field="gamma")
        if self.alpha_c + self.beta_c <= 0:
            raise InputError("expected alpha_c + beta_c > 0, got 0", field="alpha_c")

    def __iter__(self) -> Iterator[float]:
        """Yield the seven numbers in the order of the fields."""
        return iter(astuple(self))


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
            value = getattr(self, name)
            number = _as_float(value)
            if not 0 <= number < np.inf:
                shown = describe(value)
                raise InputError(f"expected a finite number >= 0, got {shown}", field=name)
            object.__setattr__(self, name, number)

    def __iter__(self) -> Iterator[float]:
        """Yield ``sqr``, then ``var``."""
        return iter(astuple(self))


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
        """Check what is given; sequences become parameters."""
        object.__setattr__(self, "perf", _params("perf", PerfParams, self.perf))
        object.__setattr__(self, "grad", _params("grad", GradParams, self.grad))
        size = as_number("init_batch_size", self.init_batch_size, above=0)
        object.__setattr__(self, "init_batch_size", int(size) if size == int(size) else size)

    def accum_time(self, atomic_bsz: ArrayLike) -> Quantity:
        """Return the time of forward and backward of one micro-batch per replica."""
        return _given(self._accum(as_array("atomic_bsz", atomic_bsz, above=0)))

    def network_time(self, num_nodes: ArrayLike, num_replicas: ArrayLike) -> Quantity:
        """Return the time of the gradient exchange."""
        return _given(self._network(*placement(num_nodes, num_replicas)))

    def optim_time(
        self, num_nodes: ArrayLike, num_replicas: ArrayLike, atomic_bsz: ArrayLike
    ) -> Quantity:
        """Return the time of a step that exchanges gradients: the gamma-norm of both times."""
        return _given(self._optim(*_configuration(num_nodes, num_replicas, atomic_bsz, 0)[:3]))

    def step_time(
        self,
        num_nodes: ArrayLike,
        num_replicas: ArrayLike,
        atomic_bsz: ArrayLike,
        accum_steps: ArrayLike,
    ) -> Quantity:
        """Return the time of all accumulation steps and the step that exchanges gradients."""
        return _given(self._step(*_configuration(num_nodes, num_replicas, atomic_bsz, accum_steps)))

    def throughput(
        self,
        num_nodes: ArrayLike,
        num_replicas: ArrayLike,
        atomic_bsz: ArrayLike,
        accum_steps: ArrayLike,
    ) -> Quantity:
        """Return samples per unit of time.

        Parameters
        ----------
        num_nodes, num_replicas : array_like
            Whole numbers, 1 <= nodes <= replicas.
        atomic_bsz : array_like
            Samples per micro-batch and replica, above 0.
        accum_steps : array_like
            Micro-batches before the one that exchanges gradients, from 0 on.

        Raises
        ------
        InputError
            Names the argument and the place of the first value that cannot be used.
        """
        values = _configuration(num_nodes, num_replicas, atomic_bsz, accum_steps)
        return _given(_batch(*values) / self._step(*values))

    def efficiency(self, batch_size: ArrayLike) -> Quantity:
        """Return the progress per sample, relative to training at the initial batch size."""
        return _given(self._efficiency(as_array("batch_size", batch_size, above=0)))

    def evaluate(
        self,
        num_nodes: ArrayLike,
        num_replicas: ArrayLike,
        atomic_bsz: ArrayLike,
        accum_steps: ArrayLike,
    ) -> Quantity:
        """Return the goodput: throughput times efficiency; arguments as in `throughput`.

        Raises
        ------
        InputError
            As in `throughput`; or a batch is smaller than the initial batch size.
        """
        values = _configuration(num_nodes, num_replicas, atomic_bsz, accum_steps)
        batch = _batch(*values)
        expected = (
            "num_replicas * atomic_bsz * (accum_steps + 1) of at least the initial batch size "
            f"{self.init_batch_size:g}"
        )
        refuse("atomic_bsz", batch, batch < self.init_batch_size, expected)
        return _given(self._goodput(*values))

    __call__ = evaluate

    def optimize(
        self,
        num_nodes: ArrayLike,
        num_replicas: ArrayLike,
        max_batch_size: float | None = None,
        atomic_bsz_range: tuple[float | None, float | None] | None = None,
        accumulation: bool = False,
        compat: bool = False,
    ) -> tuple[Quantity, Count, Count]:
        """Return the best goodput of each placement, and how it is reached.

        Of 50 batch sizes in geometric steps the best one is taken, the smallest of equals.

        Parameters
        ----------
        num_nodes, num_replicas : array_like
            Whole numbers, 1 <= nodes <= replicas; they broadcast.
        max_batch_size : float, optional
            Largest batch over all replicas and accumulation steps; the initial one if not given.
        atomic_bsz_range : pair of float or None, optional
            Least and greatest micro-batch size; 1 and `max_batch_size` where not given.
        accumulation : bool
            Whether accumulation steps may be used. Then one replica takes at least one beyond
            the initial batch size, as the gradient statistics need two micro-batches.
        compat : bool
            The published answer: `max_batch_size` gives way where each replica's least
            micro-batch exceeds it, and to rounding up.

        Returns
        -------
        goodput, atomic_bsz, accum_steps
            float, int, int for scalars; else arrays of the broadcast shape. Where no
            configuration is allowed all are 0 (with `compat` only the goodput is).

        Raises
        ------
        InputError
            A placement that cannot be, or limits that exclude everything whatever the placement.
        """
        from ppsolve.models.goodput_table import Limits, best_configurations

        limits = Limits.of(self.init_batch_size, max_batch_size, atomic_bsz_range, compat)
        nodes, replicas = np.broadcast_arrays(*placement(num_nodes, num_replicas))
        best = best_configurations(self, nodes.ravel(), replicas.ravel(), limits, accumulation)
        goodput, atomic, accum = (values.reshape(nodes.shape) for values in best)
        return _given(goodput), _counted(atomic), _counted(accum)

    def _accum(self, atomic: Floats) -> Floats:
        return self.perf.alpha_c + self.perf.beta_c * atomic

    def _network(self, nodes: Floats, replicas: Floats) -> Floats:
        alone = np.where(replicas > 1, self.perf.alpha_r, LEAST_TIME)
        alone_each = np.where(replicas > 1, self.perf.beta_r, LEAST_TIME)
        first = np.where(nodes > 1, self.perf.alpha_n, alone)
        each = np.where(nodes > 1, self.perf.beta_n, alone_each)
        return first + each * further_replicas(replicas)

    def _optim(self, nodes: Floats, replicas: Floats, atomic: Floats) -> Floats:
        accum, network = self._accum(atomic), self._network(nodes, replicas)
        longer, shorter = np.maximum(accum, network), np.minimum(accum, network)
        gamma = self.perf.gamma
        total: Floats = longer * (1 + (shorter / longer) ** gamma) ** (1 / gamma)
        return total

    def _step(self, nodes: Floats, replicas: Floats, atomic: Floats, accum: Floats) -> Floats:
        return accum * self._accum(atomic) + self._optim(nodes, replicas, atomic)

    def _efficiency(self, batch: Floats) -> Floats:
        # The gain var + sqr over var / scale + sqr, divided by scale, without a 0 / 0 on the way.
        largest, scale = max(self.grad), batch / self.init_batch_size
        if not largest:
            return 1 / scale
        sqr, var = self.grad.sqr / largest, self.grad.var / largest
        efficiency: Floats = (var + sqr) / (var + sqr * scale)
        return efficiency

    def _goodput(self, nodes: Floats, replicas: Floats, atomic: Floats, accum: Floats) -> Floats:
        batch = _batch(nodes, replicas, atomic, accum)
        return batch / self._step(nodes, replicas, atomic, accum) * self._efficiency(batch)


def further_replicas(replicas: Floats) -> Floats:
    """Return by what beta_n and beta_r count: replicas beyond the second, at least 1e-8."""
    return np.maximum(replicas - 2, LEAST_TIME)


def as_array(
    name: str, value: Any, *, above: float | None = None, least: float = 0.0, whole: bool = False
) -> Floats:
    """Return numbers of any shape as doubles: above `above` if given, else from `least` on.

    Raises
    ------
    InputError
        Names the argument, the place of the first value that cannot be used, and what would do.
    """
    doubles = _doubles(name, value)
    too_high = doubles > float(MAX_NUMBER)
    enough = doubles >= least if above is None else doubles > above
    bad = ~enough | too_high
    if whole:
        bad |= doubles != np.floor(doubles)
    bound = f">= {least:g}" if above is None else f"> {above:g}"
    high = " and at most 1e15" if np.any(too_high) else ""
    refuse(name, doubles, bad, f"a {'whole ' if whole else ''}number {bound}{high}")
    return doubles


def _doubles(name: str, value: Any) -> Floats:
    try:
        array = np.asarray(value)
        has_truth = isinstance(value, list | tuple) and bool in map(type, value)
        if array.dtype.kind not in "iuf" or has_truth:
            array = np.asarray(value, dtype=object)
            for place, item in np.ndenumerate(array):
                if not _is_number(item):
                    raise InputError(
                        f"expected a number, got {describe(item)}", field=_path(name, place)
                    )
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError("expected numbers that form an array", field=name) from None


def _is_number(value: Any) -> bool:
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


def _as_float(value: Any) -> float:
    """Return the nearest double, NaN for what is no number or beyond all doubles."""
    try:
        return float(value) if _is_number(value) else np.nan
    except (OverflowError, ValueError):
        return np.nan


def as_number(name: str, value: Any, *, above: float | None = None, least: float = 0.0) -> float:
    """Return one number as `as_array` does.

    Raises
    ------
    InputError
        Not a number within the bounds.
    """
    array = as_array(name, value, above=above, least=least)
    if array.ndim:
        raise InputError(f"expected one number, got {array.size}", field=name)
    return float(array)


def refuse(name: str, values: Floats, bad: NDArray[np.bool_], expected: str) -> None:
    """Raise an error about the first value that is bad, if there is one."""
    if np.any(bad):
        place = np.unravel_index(np.argmax(bad), bad.shape)
        raise InputError(f"expected {expected}, got {values[place]:g}", field=_path(name, place))


def _path(name: str, place: tuple[Any, ...]) -> str:
    return name + "".join(f"[{index}]" for index in place)


def _params(name: str, kind: type[Any], value: Any) -> Any:
    """Return `value` as one of the parameter classes."""
    if isinstance(value, kind):
        return value
    names = ", ".join(kind.__dataclass_fields__)
    try:
        numbers = tuple(value)
    except TypeError:
        numbers = ()
    if isinstance(value, str | dict) or len(numbers) != len(kind.__dataclass_fields__):
        raise InputError(
            f"expected {kind.__name__} or the numbers {names}, got {describe(value)}", field=name
        )
    try:
        return kind(*numbers)
    except InputError as error:
        raise InputError(error.message, field=f"{name}.{error.field}") from None


def placement(num_nodes: ArrayLike, num_replicas: ArrayLike) -> tuple[Floats, Floats]:
    """Return nodes and replicas, checked (``1 <= nodes <= replicas``), as they were shaped."""
    nodes = as_array("num_nodes", num_nodes, least=1, whole=True)
    replicas = as_array("num_replicas", num_replicas, least=1, whole=True)
    _refuse_shapes(num_nodes=nodes, num_replicas=replicas)
    too_many = nodes > replicas
    shown = np.broadcast_to(nodes, too_many.shape)
    refuse("num_nodes", shown, too_many, "at most as many nodes as replicas")
    return nodes, replicas


def _configuration(
    num_nodes: ArrayLike, num_replicas: ArrayLike, atomic_bsz: ArrayLike, accum_steps: ArrayLike
) -> tuple[Floats, Floats, Floats, Floats]:
    nodes, replicas = placement(num_nodes, num_replicas)
    atomic = as_array("atomic_bsz", atomic_bsz, above=0)
    accum = as_array("accum_steps", accum_steps)
    _refuse_shapes(num_nodes=nodes, num_replicas=replicas, atomic_bsz=atomic, accum_steps=accum)
    return nodes, replicas, atomic, accum


def _refuse_shapes(**arrays: Floats) -> None:
    try:
        np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError:
        shapes = ", ".join(str(array.shape) for array in arrays.values())
        raise InputError(
            f"expected shapes that broadcast together, got {shapes}", field=", ".join(arrays)
        ) from None


def _batch(nodes: Floats, replicas: Floats, atomic: Floats, accum: Floats) -> Floats:
    return replicas * atomic * (accum + 1)


def _given(array: Floats) -> Quantity:
    """Return an array as it is, but a scalar for what has no shape."""
    return array if np.ndim(array) else float(array)


def _counted(array: Floats) -> Count:
    counts = array.astype(np.int64)
    return counts if counts.ndim else int(counts)


def __getattr__(name: str) -> Any:
    """Return `fit` and `Fit`, whose module builds on this one."""
    if name in {"Fit", "fit"}:
        from ppsolve.models import goodput_fit

        return getattr(goodput_fit, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
