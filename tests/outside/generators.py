"""Families of random pipelines on which bounds and searches once failed, each by its name."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from tests.outside.plain_model import Instance


class Shape(NamedTuple):
    """Devices and stages of a pipeline."""

    devices: int
    stages: int
    is_split: bool


PLACEMENTS = ("linear", "linear", "vshape", "interleaved", "explicit")


def _shape(draw: Random, *, ops: int) -> tuple[Instance, Shape]:
    """Return a small pipeline without times: at most 3 devices, 4 micro-batches and so many ops."""
    is_split = draw.random() < 0.25
    while True:
        devices, placement = draw.randint(1, 3), draw.choice(PLACEMENTS)
        chunks = 2 if placement in {"interleaved", "vshape"} else 1
        stages, where = devices * chunks, list[int]()
        if placement == "explicit":
            stages = draw.randint(1, 4)
            where = [draw.randrange(devices) for _ in range(stages)]
            if len(set(where)) < devices:
                continue
        count = draw.randint(1, 4)
        if stages * count * (3 if is_split else 2) > ops:
            continue
        data: Instance = {
            "num_devices": devices,
            "num_microbatches": count,
            "placement": {"stage_to_device": where} if where else placement,
        }
        if chunks == 2:
            data["stages_per_device"] = chunks
        return data, Shape(devices, stages, is_split)


def _times(draw: Random, shape: Shape) -> dict[str, list[int]]:
    """Return times by stage, some of them none."""
    kinds = ("forward", "backward_input", "backward_weight")
    times = {}
    for kind in kinds if shape.is_split else ("forward", "backward"):
        least = 0 if draw.random() < 0.08 else 1
        is_one = draw.random() >= 0.6
        times[kind] = [draw.randint(least, 9) for _ in range(shape.stages)]
        if is_one:
            times[kind] = times[kind][:1] * shape.stages
    return times


def _latency(draw: Random, devices: int) -> Instance | None:
    """Return no transfers, or delays of one length or by pair of devices."""
    if draw.random() < 0.4:
        return None
    pairs = [
        [0 if a == b else draw.randint(0, 4) for b in range(devices)]
        for a in range(devices)
    ]
    return {"latency": draw.choice([1, 2, 0.5, pairs])}


def _memory(draw: Random, shape: Shape) -> Instance:
    """Return memory with room for one activation of a device and a little more."""
    unit = draw.choice([1, 1, 2, 4])
    stages = [unit] * shape.stages
    if draw.random() >= 0.6:
        stages = [draw.choice([unit, unit * 1.5, unit * 0.5]) for _ in stages]
    largest = max(stages)
    two = sum(sorted(stages)[-2:]) if shape.stages > shape.devices else largest
    room = draw.choice(
        [largest, two, two * 1.25, largest * 2, 2 * two, two * 1.5, 3 * largest]
    )
    rooms: Any = room
    if draw.random() < 0.2:
        rooms = [room * draw.choice([1, 1, 1.5]) for _ in range(shape.devices)]
    memory = {"capacity": rooms, "activation": stages}
    if shape.is_split and draw.random() < 0.7:
        memory["released_by_backward_weight"] = draw.choice([0, 0.5, 1, 0.25])
    elif shape.is_split and draw.random() < 0.3:
        memory["left_to_weight"] = [
            draw.choice([0, 0.5, 1]) * amount for amount in stages
        ]
    return memory


def heavy_tail(draw: Random) -> Instance:
    """Return unequal micro-batches, with long all-reduces and optimizers behind some stages."""
    data, shape = _shape(draw, ops=16)
    count = data["num_microbatches"]
    data["times"] = {
        kind: [
            [max(1, time + draw.randint(-3, 6)) for _ in range(count)]
            for time in by_stage
        ]
        for kind, by_stage in _times(draw, shape).items()
    }
    transfers = _latency(draw, shape.devices)
    if draw.random() < 0.4:
        transfers = {
            "mode": draw.choice(["link", "nic", "send_queue"]),
            "bytes": draw.choice([1, 2, 4]),
            "bandwidth": 1,
            "latency": draw.choice([0, 1]),
        }
    if transfers:
        data["p2p"] = transfers
    is_reduced = draw.random() < 0.7
    for name, is_there in (
        ("allreduce", is_reduced),
        ("optimizer", draw.random() < 0.6),
    ):
        if is_there or (name == "optimizer" and not is_reduced):
            data[name] = [
                draw.choice([0, 1, draw.randint(5, 80)]) for _ in range(shape.stages)
            ]
    if draw.random() < 0.5:
        data["memory"] = _memory(draw, shape)
    return data


def heavy_zero(draw: Random) -> Instance:
    """Return unequal micro-batches, one long op behind a later stage, and ops of no time."""
    while True:
        stages, count = draw.choice([2, 3, 3, 4]), draw.randint(2, 5)
        if stages * count * 2 <= 32:
            break
    times = {
        kind: [[draw.randint(1, 12) for _ in range(count)] for _ in range(stages)]
        for kind in ("forward", "backward")
    }
    data: Instance = {"num_devices": stages, "num_microbatches": count, "times": times}
    if stages > 2 and draw.random() < 0.7:
        short = [0 if draw.random() < 0.6 else draw.randint(1, 5) for _ in range(count)]
        times[draw.choice(["forward", "backward"])][draw.randrange(1, stages - 1)] = (
            short
        )
        data["p2p"] = {"latency": draw.choice([0, 1, 2])}
    else:
        sizes = [
            [draw.choice([0, 1, 2]) for _ in range(count)] for _ in range(stages - 1)
        ]
        data["p2p"] = {"mode": "link", "bytes": sizes, "bandwidth": 1}
    work = sum(time for by_stage in times.values() for row in by_stage for time in row)
    tail = [0] * stages
    tail[draw.randrange(1, stages)] = draw.randint(work // 3, work)
    data[draw.choice(["allreduce", "optimizer"])] = tail
    if draw.random() < 0.7:
        amounts = [
            [draw.choice([0.5, 1, 0.75]) for _ in range(count)] for _ in range(stages)
        ]
        data["memory"] = {
            "capacity": draw.choice([1, 1.5, 2, 2.5]),
            "activation": amounts,
        }
    return data


def growing(draw: Random) -> Instance:
    """Return split backwards that leave more to the weight gradient than an activation."""
    while True:
        data, shape = _shape(draw, ops=24)
        if shape.is_split:
            break
    amounts = [draw.choice([1, 1, 1.5, 2]) for _ in range(shape.stages)]
    left = [amount * draw.choice([0.5, 1.5, 2, 3]) for amount in amounts]
    if draw.random() < 0.5:
        amounts, left = amounts[:1] * shape.stages, [max(left)] * shape.stages
    room = max(amounts + left) * draw.choice([1, 1, 1.25, 1.5, 2, 3])
    data["times"] = _times(draw, shape)
    data["memory"] = {
        "capacity": room * (shape.stages // shape.devices),
        "activation": amounts,
        "left_to_weight": left,
    }
    transfers = _latency(draw, shape.devices)
    return data | ({"p2p": transfers} if transfers else {})


FAMILIES: dict[str, Callable[[Random], Instance]] = {
    "heavy_tail": heavy_tail,
    "heavy_zero": heavy_zero,
    "growing": growing,
}


def drawn(family: str, seed: int) -> Instance:
    """Return an instance of a family; the same for the same seed."""
    return FAMILIES[family](Random(seed))
