"""Pipelines under changes that leave their optimum, or multiply it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any

from tests.agreement.draws import Document
from tests.agreement.graphs import devices_of

TIMES = frozenset(
    {
        "forward",
        "backward",
        "backward_input",
        "backward_weight",
        "latency",
        "bytes",
        "allreduce",
        "optimizer",
        "alltoall",
        "time",
        "out",
        "back",
        "release",
    }
)
"""Fields of drawn pipelines that are times, or in proportion to one."""

AMOUNTS = frozenset({"capacity", "activation", "static", "held", "amount"})
"""Fields of drawn pipelines that are amounts of memory."""


def times_scaled(document: Document, factor: float) -> Document:
    """Return a pipeline whose times are all longer by a factor."""
    scaled = _scaled(document, TIMES, factor)
    for filler in scaled.get("fillers", ()):
        filler["pieces"] = _multiplied(filler["pieces"], factor)
    return scaled


def memory_scaled(document: Document, factor: float) -> Document:
    """Return a pipeline whose amounts of memory are all larger by a factor."""
    return _scaled(document, AMOUNTS, factor)


def _scaled(entry: Any, names: frozenset[str], factor: float) -> Any:
    if isinstance(entry, list):
        return [_scaled(each, names, factor) for each in entry]
    if not isinstance(entry, dict):
        return entry
    return {
        name: _multiplied(value, factor)
        if name in names and not isinstance(value, dict)
        else _scaled(value, names, factor)
        for name, value in entry.items()
    }


def _multiplied(entry: Any, factor: float) -> Any:
    if isinstance(entry, list):
        return [_multiplied(each, factor) for each in entry]
    return None if entry is None else round(entry * factor, 9)


def with_placement_listed(document: Document) -> Document:
    """Return a pipeline whose placement is the list of the devices of its stages."""
    listed = deepcopy(document)
    listed.pop("stages_per_device", None)
    listed["placement"] = {"stage_to_device": devices_of(document)}
    return listed


def with_devices_renamed(
    document: Document, rename: Callable[[int, int], int]
) -> Document:
    """Return a pipeline whose devices have other numbers, `rename` of the old one and the count."""
    count = document["num_devices"]
    new = [rename(device, count) for device in range(count)]
    old = [new.index(device) for device in range(count)]
    renamed = with_placement_listed(document)
    renamed["placement"] = {"stage_to_device": [new[d] for d in devices_of(document)]}
    latency = renamed.get("p2p", {}).get("latency")
    if isinstance(latency, list):
        renamed["p2p"]["latency"] = [_picked(latency[device], old) for device in old]
    capacity = renamed.get("memory", {}).get("capacity")
    if isinstance(capacity, list):
        renamed["memory"]["capacity"] = _picked(capacity, old)
    for filler in renamed.get("fillers", ()):
        filler["device"] = new[filler["device"]]
    return renamed


def _picked(entries: Sequence[Any], places: Sequence[int]) -> list[Any]:
    return [entries[place] for place in places]


def reversed_in_time(document: Document) -> Document:
    """Return a pipeline of whole backwards whose schedules are those of this one, run backwards.

    A backward that runs backwards begins at the first stage, like a forward, and takes memory where
    it gave it back. So forwards and backwards change places, transfers go the other way, and what
    is copied out is copied back.
    """
    swapped = deepcopy(document)
    times = document["times"]
    swapped["times"] = {"forward": times["backward"], "backward": times["forward"]}
    for name, entry in swapped["times"].items():
        if isinstance(entry, list) and any(isinstance(each, list) for each in entry):
            swapped["times"][name] = [list(reversed(each)) for each in entry]
    latency = document.get("p2p", {}).get("latency")
    if isinstance(latency, list):
        swapped["p2p"]["latency"] = [list(row) for row in zip(*latency, strict=True)]
    offload = swapped.get("memory", {}).get("offload")
    if offload is not None:
        offload["out"], offload["back"] = offload["back"], offload["out"]
    if "overlap" in document:
        block_times = document["overlap"]["time"]
        swapped["overlap"]["time"] = [
            list(row) for row in zip(*block_times, strict=True)
        ]
    return swapped


def listed_by_microbatch(document: Document) -> Document:
    """Return a pipeline that gives every micro-batch its time, though all have the same."""
    listed, count = deepcopy(document), document["num_microbatches"]
    stages = len(devices_of(document))
    for kind, entry in document["times"].items():
        rows = entry if isinstance(entry, list) else [entry] * stages
        listed["times"][kind] = [[time] * count for time in rows]
    return listed


def with_microbatches(document: Document, numbers: Sequence[int]) -> Document:
    """Return a pipeline of some of the micro-batches, each of which has times of its own."""
    times = {
        kind: [_picked(row, numbers) for row in rows]
        for kind, rows in document["times"].items()
    }
    return document | {"num_microbatches": len(numbers), "times": times}


def with_ops_shuffled(document: Document) -> Document:
    """Return a graph whose ops, edges and resources stand in another order, under other names."""
    draw = Random(0)
    text = json.dumps(document)
    names = [op["id"] for op in document["ops"]] + list(document["resources"])
    for number, name in enumerate(draw.sample(names, len(names))):
        text = text.replace(f'"{name}"', f'"x{number}"')
    shuffled: Document = json.loads(text)
    for field in ("ops", "precedences", "resources", "pools"):
        draw.shuffle(shuffled.get(field, []))
    return shuffled


IDLE_PARTS = (
    "one slice",
    "one step",
    "one replica",
    "no pair fused",
    "a job of no time",
)
"""Parts of which no schedule makes use, see `with_idle_parts`."""


def with_idle_parts(document: Document) -> dict[str, Document]:
    """Return a pipeline with each of `IDLE_PARTS`, by name."""
    stages = len(devices_of(document))
    parts: tuple[Document, ...] = (
        {"slices": 1},
        {"steps": 1},
        {"replicas": {"count": 1}},
        {"overlap": {"time": [[None] * stages for _ in range(stages)]}},
        {"fillers": [{"name": "nothing", "device": 0, "pieces": [0]}]},
    )
    return {name: document | part for name, part in zip(IDLE_PARTS, parts, strict=True)}
