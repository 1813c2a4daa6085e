"""Places, times and saved bytes of the K-FAC work of a described pipeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction

from ppsolve.models.core.problem import Problem
from ppsolve.models.kfac.instance import KfacInstance, KfacModule
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.lowering import lower_pipeline

Place = tuple[int, int]
"""A stage and a device that holds it."""

FACTORS = ("A", "B")

_TIME_FIELDS = {"cov": "curvature", "sync": "sync", "inv": "inverse"}
_SAVED_FIELDS = {"A": "input_bytes", "B": "error_bytes"}


def places(pipeline: PipelineInstance) -> list[Place]:
    """Return every stage with each device that holds it, sorted."""
    return sorted(
        {place for devices in pipeline.stage_devices_of_pipes() for place in enumerate(devices)}
    )


def modules_by_stage(instance: KfacInstance) -> dict[int, list[KfacModule]]:
    """Return the modules of each stage in the order of the instance; a stage may have none."""
    found: dict[int, list[KfacModule]] = defaultdict(list)
    for module in instance.modules or ():
        found[module.stage].append(module)
    return found


def sync_devices(module: KfacModule, holders: Iterable[int]) -> tuple[int, ...]:
    """Return the devices that meet in a module's syncs: its replicas and the holders of its stage.

    Parameters
    ----------
    module : KfacModule
    holders : iterable of int
        Devices that hold its stage.

    Returns
    -------
    tuple of int
        Devices, ascending.
    """
    return tuple(sorted({*holders, *(module.replicas or ())}))


def work_time(module: KfacModule, kind: str, factor: str) -> Fraction:
    """Return the time of a module's curvature (per micro-batch), sync or inversion.

    Parameters
    ----------
    module : KfacModule
    kind : str
        ``cov``, ``sync`` or ``inv``.
    factor : str
        ``A`` or ``B``.

    Returns
    -------
    Fraction
        Time in the instance's unit.
    """
    return Fraction(getattr(module, f"{_TIME_FIELDS[kind]}_{factor.lower()}"))


def saved_bytes(module: KfacModule, factor: str) -> Fraction:
    """Return the memory that a module holds per micro-batch until its curvature is done.

    Parameters
    ----------
    module : KfacModule
    factor : str
        ``A`` (saved inputs) or ``B`` (saved errors).

    Returns
    -------
    Fraction
        Amount in the instance's unit of memory.
    """
    return Fraction(getattr(module, _SAVED_FIELDS[factor]))


def lower_iteration(instance: KfacInstance, *, exact: bool = False) -> Problem:
    """Lower one iteration of the pipeline alone, at the scale of the whole instance.

    Parameters
    ----------
    instance : KfacInstance
    exact : bool
        Refuse times without a common tick within the limit instead of rounding them up.

    Returns
    -------
    Problem
        One iteration in ticks.

    Raises
    ------
    InputError
        The times have no common tick within the limit and `exact` is true.
    """
    assert instance.pipeline is not None
    return lower_pipeline(instance.pipeline, exact=exact, extra_times=_times(instance))


def _times(instance: KfacInstance) -> Iterator[Fraction]:
    for module in instance.modules or ():
        yield Fraction(module.precondition)
        for factor in FACTORS:
            for kind in _TIME_FIELDS:
                yield work_time(module, kind, factor)
