"""Which device each resource and each memory pool of a problem belongs to."""

from __future__ import annotations

import re

from ppsolve.models.core.problem import FREE, Problem


def owners(problem: Problem) -> list[int]:
    """Return the device of each resource: the number in its name, else that of its first op."""
    devices = [device for device in problem.device.tolist() if device != FREE]
    most = max(devices, default=0)
    found = []
    for resource, name in enumerate(problem.resource_names):
        ops = problem.ops_by_resource[resource]
        device = int(problem.device[ops[0]]) if len(ops) else FREE
        found.append(number_in(name, most, max(device, 0)))
    return found


def number_in(name: str, most: int, otherwise: int = 0) -> int:
    """Return the first number of a name, such as the device of ``device 3``.

    Parameters
    ----------
    name : str
        Name of a resource or a pool.
    most : int
        Largest number that is one of a device.
    otherwise : int
        The answer where the name has no such number.

    Returns
    -------
    int
        Number of a device.
    """
    found = re.search(r"[0-9]+", name)
    return int(found[0]) if found and int(found[0]) <= most else otherwise
