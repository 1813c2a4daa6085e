"""Which device each resource and each memory pool of a problem belongs to."""

from __future__ import annotations

from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import FREE, IntArray, Problem


def owners(problem: Problem) -> list[int]:
    """Return the device of each resource: that of its key, else that of its first op, else 0."""
    users = problem.ops_by_resource
    return [
        _owner(problem, key, users[number])
        for number, key in enumerate(problem.resources)
    ]


def pool_owners(problem: Problem) -> list[int]:
    """Return the device of each pool: that of its key, else that of its first user, else 0."""
    return [_owner(problem, pool.key, pool.acquire_op) for pool in problem.pools]


def _owner(problem: Problem, key: DeviceName, users: IntArray) -> int:
    if key.device is not None:
        return key.device
    device = int(problem.device[users[0]]) if len(users) else FREE
    return max(device, 0)
