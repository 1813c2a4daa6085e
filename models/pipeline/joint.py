"""Replicas side by side: the problems of all replicas put together as one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Pool, Problem
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.lowering import lower_replicas
from ppsolve.models.pipeline.replicas import Members

_NUMBER = re.compile(r"\d+")


def lower_joint(instance: PipelineInstance, members: Members, *, exact: bool = False) -> Problem:
    """Lower a pipeline with replicas to one problem.

    Parameters
    ----------
    instance : PipelineInstance
    members : tuple of tuple of int
        Micro-batches of each replica.
    exact : bool
        Refuse times without a common tick within the limit instead of rounding them up.

    Returns
    -------
    Problem
        The ops of replica 0, then those of replica 1, and so on. Devices are numbered through all
        replicas, micro-batches as in the instance; ops of no micro-batch are called ``OPT0@1``, by
        their replica.
    """
    problems = lower_replicas(instance, members, exact=exact)
    return join(problems, members, instance.num_devices)


def join(problems: Sequence[Problem], members: Sequence[Sequence[int]], devices: int) -> Problem:
    """Put the problems of replicas together.

    Parameters
    ----------
    problems : sequence of Problem
        One for each replica, with the same kinds and the same tick.
    members : sequence of sequences of int
        Number, in the joint problem, of each micro-batch of each replica.
    devices : int
        Devices of one replica.

    Returns
    -------
    Problem
    """
    first = problems[0]
    ops = _starts([problem.num_ops for problem in problems])
    resources = _starts([problem.num_resources for problem in problems])
    rows = _starts([len(problem.resource_idx) for problem in problems])

    def shifted(column: Callable[[Problem], IntArray], by: IntArray) -> IntArray:
        return np.concatenate(
            [column(p) + int(shift) for p, shift in zip(problems, by[:-1], strict=True)]
        )

    def joined(column: Callable[[Problem], IntArray]) -> IntArray:
        return np.concatenate([column(problem) for problem in problems])

    counts = [problem.num_ops for problem in problems]
    replica = np.repeat(np.arange(len(problems)), counts)
    device = joined(lambda problem: problem.device)
    return replace(
        first,
        duration=joined(lambda problem: problem.duration),
        resource_names=_resource_names(problems, devices),
        resource_ptr=np.append(shifted(lambda problem: problem.resource_ptr[:-1], rows), rows[-1]),
        resource_idx=shifted(lambda problem: problem.resource_idx, resources),
        before=shifted(lambda problem: problem.before, ops),
        after=shifted(lambda problem: problem.after, ops),
        lag=joined(lambda problem: problem.lag),
        release=joined(lambda problem: problem.release),
        pinned=joined(lambda problem: problem.pinned),
        pools=_pools(problems, ops, devices),
        families=_families(problems, ops),
        span_resources=shifted(lambda problem: problem.span_resources, resources),
        kind=joined(lambda problem: problem.kind),
        stage=joined(lambda problem: problem.stage),
        device=np.where(device == FREE, FREE, device + replica * devices),
        microbatch=_microbatches(problems, members),
        explicit_names=_names(problems, ops),
        replica=replica,
    )


def _starts(counts: Sequence[int]) -> IntArray:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


def _resource_names(problems: Sequence[Problem], devices: int) -> tuple[str, ...]:
    return tuple(
        _renumbered(name, number * devices)
        for number, problem in enumerate(problems)
        for name in problem.resource_names
    )


def _pools(problems: Sequence[Problem], ops: IntArray, devices: int) -> tuple[Pool, ...]:
    return tuple(
        _moved(pool, int(ops[number]), number * devices)
        for number, problem in enumerate(problems)
        for pool in problem.pools
    )


def _families(problems: Sequence[Problem], ops: IntArray) -> tuple[IntArray, ...]:
    return tuple(
        rows + int(ops[number])
        for number, problem in enumerate(problems)
        for rows in problem.families
    )


def _renumbered(name: str, by: int) -> str:
    # All numbers in names of resources and pools are those of devices.
    return _NUMBER.sub(lambda found: str(int(found[0]) + by), name)


def _moved(pool: Pool, op: int, device: int) -> Pool:
    return replace(
        pool,
        name=_renumbered(pool.name, device),
        acquire_op=pool.acquire_op + op,
        release_op=pool.release_op + op,
    )


def _microbatches(problems: Sequence[Problem], members: Sequence[Sequence[int]]) -> IntArray:
    parts = []
    for problem, those in zip(problems, members, strict=True):
        # The last entry is that of FREE, -1.
        numbers = np.array([*those, FREE], dtype=np.int64)
        parts.append(numbers[problem.microbatch])
    return np.concatenate(parts)


def _names(problems: Sequence[Problem], ops: IntArray) -> dict[int, str]:
    names = {}
    for replica, problem in enumerate(problems):
        for op in np.flatnonzero(problem.microbatch == FREE).tolist():
            names[int(ops[replica]) + op] = f"{problem.op_name(op)}@{replica}"
    return names
