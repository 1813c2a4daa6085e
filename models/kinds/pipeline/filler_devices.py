"""Fillers that several devices may run, as an open problem: every other device is an option."""

from __future__ import annotations

from typing import Any

import numpy as np

from ppsolve.models.core.options import OpenProblem, Option
from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.filling import filler_ops
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.labels import FILLER_KIND

CHOSEN_DEVICES = "devices"
"""Key of the numbers of other devices in the choices of a problem, int64[c]."""


class FillerDevices(OpenProblem):
    """Fillers on the first of their devices, and an option for each other one."""

    def device_of(self, number: int) -> int:
        """Return the device of an option."""
        (resource,) = self.options[number].resources
        (device,) = self.base.resources[resource].devices
        return device

    def problem(self, choice: IntArray) -> Problem:
        """Return the problem of a choice; its ops have the numbers of the base."""
        problem = super().problem(choice)
        for number in choice.tolist():
            problem.device[self.options[number].ops[0]] = self.device_of(number)
        return problem


def device_choices(instance: PipelineInstance, base: Problem) -> FillerDevices:
    """Return the devices on which the fillers of a pipeline, lowered to `base`, may run."""
    resource_of = {key: number for number, key in enumerate(base.resources)}
    options = []
    for filler, _, ops in filler_ops(instance, base):
        for device in filler.devices:
            (op,) = ops.tolist()
            stream = resource_of[filler.stream_on(device, instance)]
            ticks, name = int(base.duration[op]), base.op_name(op)
            options.append(Option((op,), ticks, (stream,), FILLER_KIND, name))
    return FillerDevices(base, tuple(options), field=CHOSEN_DEVICES)


def choice_of_devices(problem: FillerDevices, moved: Any) -> IntArray:
    """Return the choice of some devices: the other one of each filler that is not on its first one.

    An `InputError` names the field ``devices`` and what no filler allows.
    """
    pairs = moved.items() if isinstance(moved, dict) else [(describe(moved), "")]
    numbers = {
        (option.name, str(problem.device_of(number))): number
        for number, option in enumerate(problem.options)
    }
    for name, device in pairs:
        if (name, str(device)) not in numbers:
            raise InputError(
                f'expected fillers, each with one of its other devices, got "{name}": {device}',
                field="devices",
            )
    return np.array(
        sorted(numbers[name, str(device)] for name, device in pairs), dtype=np.int64
    )


def devices_of_schedule(
    instance: PipelineInstance, schedule: Schedule
) -> dict[str, int]:
    """Return the other device of each filler that is not on its first one, by the op's name."""
    problem = schedule.problem
    return {
        problem.op_name(int(ops[0])): int(problem.device[ops[0]])
        for filler, _, ops in filler_ops(instance, problem)
        if problem.device[ops[0]] != filler.device
    }
