"""Fillers that several devices may run, as an open problem: every other device is an option."""

from __future__ import annotations

from typing import Any

import numpy as np

from ppsolve.models.core.options import OpenProblem, Option
from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.filling import FILLER_KIND
from ppsolve.models.kinds.pipeline.instance import PipelineInstance


class FillerDevices(OpenProblem):
    """Fillers on the first of their devices, and an option for each other one."""

    def device_of(self, number: int) -> int:
        """Return the device of an option."""
        (resource,) = self.options[number].resources
        (device,) = self.base.resources[resource].devices
        return device

    def problem(self, choice: IntArray) -> Problem:
        """Return the problem of a choice; its ops have the numbers of the base."""
        found = super().problem(choice)
        for number in choice.tolist():
            found.device[self.options[number].ops[0]] = self.device_of(number)
        return found


def device_choices(instance: PipelineInstance, base: Problem) -> FillerDevices:
    """Return the devices on which the fillers of a pipeline may run.

    Parameters
    ----------
    instance : PipelineInstance
    base : Problem
        What it is lowered to.

    Returns
    -------
    FillerDevices
    """
    op_of = {name: op for op, name in base.explicit_names.items()}
    resource_of = {key: number for number, key in enumerate(base.resources)}
    options = []
    for filler in instance.fillers:
        for k in range(instance.steps if filler.per_step else 1):
            name = f"{filler.name}@{k}" if k else filler.name
            for device in filler.devices:
                at = (resource_of[filler.stream_on(device, instance)],)
                ticks = int(base.duration[op_of[name]])
                options.append(Option((op_of[name],), ticks, at, FILLER_KIND, name))
    return FillerDevices(base, tuple(options))


def choice_of_devices(problem: FillerDevices, moved: Any) -> IntArray:
    """Return the choice of some devices.

    Parameters
    ----------
    problem : FillerDevices
    moved : dict of str to int
        The other device of each filler that is not on its first one.

    Returns
    -------
    int64[c]

    Raises
    ------
    InputError
        Names the field ``devices`` and what no filler allows.
    """
    pairs = moved.items() if isinstance(moved, dict) else [(describe(moved), "")]
    numbers = {
        (each.name, str(problem.device_of(number))): number
        for number, each in enumerate(problem.options)
    }
    for name, device in pairs:
        if (name, str(device)) not in numbers:
            raise InputError(
                f'expected fillers, each with one of its other devices, got "{name}": {device}',
                field="devices",
            )
    return np.array(sorted(numbers[name, str(device)] for name, device in pairs), dtype=np.int64)


def devices_of_schedule(instance: PipelineInstance, schedule: Schedule) -> dict[str, int]:
    """Return the other device of each filler that is not on its first one.

    Parameters
    ----------
    instance, schedule : PipelineInstance, Schedule

    Returns
    -------
    dict of str to int
        By names of ops.
    """
    problem = schedule.problem
    first = {filler.name: filler.device for filler in instance.fillers}
    ops = np.flatnonzero(problem.kind_mask(FILLER_KIND))
    pairs = zip(problem.op_names(ops), problem.device[ops].tolist(), strict=True)
    return {name: at for name, at in pairs if at != first.get(name.partition("@")[0], at)}
