"""All that pipelines leave open, but for orders and blocks, by `docs/instances.md` alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement, pairwise, product
from typing import NamedTuple

from tests.outside.plain_model import Instance, pipes_of

KEEP, OFFLOAD = "keep", "offload"


class Choice(NamedTuple):
    """All that a pipeline leaves open, but for orders and blocks.

    `layers`: of each stage the number of layers of each type.
    `modes`: of each stage the mode of each micro-batch.
    `replicas`: of each replica its micro-batches.
    `devices`: of each filler the device.
    """

    layers: tuple[tuple[int, ...], ...]
    modes: tuple[tuple[str, ...], ...]
    replicas: tuple[tuple[int, ...], ...]
    devices: tuple[int, ...]


def choices_of(instance: Instance) -> Iterator[Choice]:
    """Yield all choices of a pipeline."""
    stages = len(pipes_of(instance)[0])
    every = product(
        list(_splits(instance, stages)),
        list(_modes(instance, stages)),
        list(_assignments(instance)),
        list(_devices(instance)),
    )
    yield from (Choice(*choice) for choice in every)


def _splits(instance: Instance, stages: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    layers = instance.get("layers")
    if layers is None:
        yield ()
        return
    types, count = len(layers.get("recompute", [])) + 1, layers["body"]["count"]
    least = layers.get("min_per_stage", 1)
    least = least if isinstance(least, list) else [least] * stages
    end = count - sum(least) + stages
    for cuts in combinations(range(1, end), stages - 1):
        more = [b - a - 1 for a, b in pairwise((0, *cuts, end))]
        sizes = [few + extra for few, extra in zip(least, more, strict=True)]
        columns = [
            [
                tuple(members.count(number) for number in range(types))
                for members in combinations_with_replacement(range(types), size)
            ]
            for size in sizes
        ]
        yield from product(*columns)


def _modes(instance: Instance, stages: int) -> Iterator[tuple[tuple[str, ...], ...]]:
    memory, count = instance.get("memory") or {}, instance["num_microbatches"]
    recompute, offload = memory.get("recompute"), memory.get("offload")
    if recompute is None and offload is None:
        yield ((KEEP,) * count,) * stages
        return
    names = [KEEP, *(mode["name"] for mode in (recompute or {}).get("modes", []))]
    names += [OFFLOAD] if offload is not None else []
    decide = (recompute or offload).get("decide", "stage")
    if isinstance(decide, list):
        yield tuple(
            tuple(entry) if isinstance(entry, list) else (entry,) * count
            for entry in decide
        )
    elif decide == "all":
        yield from (((name,) * count,) * stages for name in names)
    elif decide == "stage":
        for row in product(names, repeat=stages):
            yield tuple((name,) * count for name in row)
    elif decide == "window":
        yield from _windows(instance, stages, names[1:])
    else:
        assert decide == "microbatch"
        rows = list(product(names, repeat=count))
        yield from product(rows, repeat=stages)


def _windows(
    instance: Instance, stages: int, names: list[str]
) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Yield the modes in which a mode has all but the first micro-batches of each window."""
    place = [_in_windows(instance, stages, stage) for stage in range(stages)]
    for name, first in product(names, range(max(map(max, place)) + 1)):
        yield tuple(tuple(name if k >= first else KEEP for k in row) for row in place)
    yield ((KEEP,) * instance["num_microbatches"],) * stages


def _in_windows(instance: Instance, stages: int, stage: int) -> list[int]:
    """Return the place of each micro-batch of a stage in its window."""
    count, devices = instance["num_microbatches"], instance["num_devices"]
    chunks, (chunk, rank) = stages // devices, divmod(stage, devices)
    forwards = [
        (c, i)
        for first in range(0, count, devices)
        for c in range(chunks)
        for i in range(first, min(first + devices, count))
    ]
    warm_up = devices - rank - 1
    if chunks > 1:
        warm_up = min(2 * warm_up + (chunks - 1) * devices, len(forwards))
    return [forwards.index((chunk, i)) % (warm_up + 1) for i in range(count)]


def _assignments(instance: Instance) -> Iterator[tuple[tuple[int, ...], ...]]:
    replicas, total = instance.get("replicas"), instance["num_microbatches"]
    if replicas is None:
        yield (tuple(range(total)),)
        return
    number = replicas["count"]
    if replicas.get("assignment", "fixed") == "fixed":
        share = total // number
        blocks = [list(range(r * share, r * share + share)) for r in range(number)]
        yield tuple(tuple(row) for row in replicas.get("members", blocks))
        return
    for where in product(range(number), repeat=total):
        members = tuple(
            tuple(i for i in range(total) if where[i] == r) for r in range(number)
        )
        is_equal = all(len(row) * number == total for row in members)
        if all(members) and (is_equal or replicas.get("counts", "equal") == "any"):
            yield members


def _devices(instance: Instance) -> Iterator[tuple[int, ...]]:
    yield from product(
        *(
            [filler["device"], *filler.get("devices", [])]
            for filler in instance.get("fillers", [])
        )
    )
