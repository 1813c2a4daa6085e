"""The refresh pattern of an instance with a pinned pipeline, measured or simulated."""

from __future__ import annotations

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kfac.instance import KfacInstance
from ppsolve.models.kfac.pattern import RefreshPattern, overlapping_ops
from ppsolve.models.kfac.timelines import measured_pattern
from ppsolve.solver.attended import unbroken


def pattern_of(instance: KfacInstance) -> RefreshPattern:
    """Return the pinned pipeline of an instance and its K-FAC work.

    Raises
    ------
    InputError
        The timelines or the pattern cannot be used; names the field and the instance.
    """
    try:
        if instance.timelines is not None:
            return measured_pattern(instance)
        with unbroken():
            from ppsolve.solver.kfac.simulated_pattern import simulated_pattern
        return simulated_pattern(instance)
    except InputError as error:
        raise error.located(instance.name) from None


def refuse_overlaps(pattern: RefreshPattern) -> None:
    """Refuse pipeline ops of one device that overlap: no schedule could keep both.

    Raises
    ------
    InputError
        Names the device, both ops and by how much they overlap.
    """
    time, unit = pattern.scale.time, pattern.scale.unit
    for device in pattern.devices:
        pair = overlapping_ops(device)
        if pair is not None:
            first, second = pair
            raise InputError(
                f"expected pipeline ops that do not overlap, {first.label} runs until "
                f"{time(first.end)} {unit} and {second.label} starts at {time(second.start)} "
                f"{unit} on device {device.device}",
                source=pattern.name,
                field=f"timelines[{device.device}]",
            )
