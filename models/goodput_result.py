"""Predicted and best configurations of data-parallel jobs as they leave the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ppsolve.models.goodput import Floats, GoodputModel, GradParams, PerfParams
from ppsolve.models.result import Reported


class GoodputRow(Reported):
    """One configuration.

    `batch_size` is samples per step over all replicas and accumulation steps, `accum_steps` the
    micro-batches before the one that exchanges gradients. Times are in the unit of the
    parameters, throughput and goodput in samples per that unit. Where a placement allows no
    configuration the goodput is 0, and times and throughput are absent.
    """

    num_nodes: int
    num_replicas: int
    atomic_bsz: int
    accum_steps: int
    batch_size: int
    step_time: float | None = None
    throughput: float | None = None
    efficiency: float | None = None
    goodput: float | None = None

    @property
    def is_allowed(self) -> bool:
        """Whether the limits allow any configuration there."""
        return self.goodput is None or self.goodput > 0


class GoodputRows(Reported):
    """What was predicted (`prediction`), or the best of each placement (`optimum`)."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    kind: Literal["goodput-result"] = "goodput-result"
    what: Literal["prediction", "optimum"]
    init_batch_size: float | None = None
    rows: tuple[GoodputRow, ...]


Configuration = tuple[int, int, int, int]
"""Nodes, replicas, samples of a micro-batch and replica, accumulation steps."""


def predicted_rows(
    perf: PerfParams, model: GoodputModel | None, configurations: Sequence[Configuration]
) -> tuple[GoodputRow, ...]:
    """Return what each configuration reaches.

    Parameters
    ----------
    perf : PerfParams
        Step times.
    model : GoodputModel or None
        With gradient statistics; without it efficiency and goodput are absent.
    configurations : sequence of Configuration
        At least one.

    Efficiency and goodput are absent below the initial batch size, where they are not defined.

    Raises
    ------
    InputError
        As in `GoodputModel.throughput`.
    """
    chosen = np.array(configurations, dtype=np.int64).T
    figures = _figures(model or GoodputModel(perf, GradParams(0, 0), 1), chosen).T.tolist()
    known = [model is not None and _batch(c) >= model.init_batch_size for c in configurations]
    return tuple(
        _row(configuration, found if is_known else found[:2])
        for configuration, found, is_known in zip(configurations, figures, known, strict=True)
    )


def best_rows(
    model: GoodputModel,
    placements: Sequence[tuple[int, int]],
    max_batch_size: float,
    atomic_bsz_range: tuple[float | None, float | None],
    *,
    accumulation: bool = False,
    compat: bool = False,
) -> tuple[GoodputRow, ...]:
    """Return the best configuration of each placement (nodes, replicas); at least one is given.

    Raises
    ------
    InputError
        As in `GoodputModel.optimize`, whose other arguments these are.
    """
    nodes, replicas = np.array(placements, dtype=np.int64).T
    goodput, atomic, accum = model.optimize(
        nodes, replicas, max_batch_size, atomic_bsz_range, accumulation, compat
    )
    chosen = np.array([nodes, replicas, atomic, accum])
    allowed = np.asarray(goodput) > 0
    figures = np.zeros((4, len(nodes)))
    figures[:, allowed] = _figures(model, chosen[:, allowed])
    nothing = (None, None, None, 0.0)
    return tuple(
        _row(configuration, reached if fits else nothing)
        for configuration, reached, fits in zip(
            chosen.T.tolist(), figures.T.tolist(), allowed.tolist(), strict=True
        )
    )


def _batch(configuration: Sequence[int]) -> int:
    _, replicas, atomic, accum = configuration
    return replicas * atomic * (accum + 1)


def _figures(model: GoodputModel, chosen: NDArray[np.int64]) -> Floats:
    """Return step time, throughput, efficiency and goodput [4, n] of configurations [4, n]."""
    nodes, replicas, atomic, accum = chosen
    throughput = model.throughput(nodes, replicas, atomic, accum)
    efficiency = model.efficiency(replicas * atomic * (accum + 1))
    return np.array(
        [
            model.step_time(nodes, replicas, atomic, accum),
            throughput,
            efficiency,
            throughput * efficiency,
        ]
    )


def _row(configuration: Sequence[int], figures: Sequence[float | None]) -> GoodputRow:
    nodes, replicas, atomic, accum = configuration
    names = ("step_time", "throughput", "efficiency", "goodput")
    return GoodputRow(
        num_nodes=nodes,
        num_replicas=replicas,
        atomic_bsz=atomic,
        accum_steps=accum,
        batch_size=_batch(configuration),
        **dict(zip(names, figures, strict=False)),
    )
