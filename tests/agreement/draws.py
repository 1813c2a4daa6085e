"""Random small pipelines as documents, part by part; what is drawn is valid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Document = dict[str, Any]

PLACEMENTS = ("linear", "linear", "interleaved", "vshape")
MOST_OPS = 16


def num_stages(document: Document) -> int:
    """Return the number of stages of a drawn pipeline."""
    placement = document["placement"]
    if isinstance(placement, dict):
        return len(placement["stage_to_device"])
    return document["num_devices"] * document.get("stages_per_device", 1)


def is_split(document: Document) -> bool:
    """Whether backwards are I and W."""
    return "backward_input" in document["times"]


def by_stage(document: Document, entry: Any) -> list[Any]:
    """Return an entry of a field as one entry per stage."""
    return list(entry) if isinstance(entry, list) else [entry] * num_stages(document)


def pipeline(
    draw: Random,
    *,
    placements: Sequence[str] = PLACEMENTS,
    split: bool | None = None,
    zero: float = 0.1,
    most_ops: int = MOST_OPS,
    most_microbatches: int = 5,
) -> Document:
    """Draw a pipeline of stages with times of their own, transfers and mostly memory."""
    while True:
        devices = draw.choice([1, 2, 2, 2, 3, 3])
        chunks = 1
        placement = draw.choice(placements)
        if placement in {"interleaved", "vshape"}:
            chunks = 2
        microbatches = draw.randint(1, most_microbatches)
        is_split = draw.random() < 0.5 if split is None else split
        if devices * chunks * microbatches * (3 if is_split else 2) <= most_ops:
            break
    kinds = (
        ["forward", "backward_input", "backward_weight"]
        if is_split
        else ["forward", "backward"]
    )
    document: Document = {
        "kind": "pipeline",
        "num_devices": devices,
        "num_microbatches": microbatches,
        "placement": placement,
    }
    if chunks > 1:
        document["stages_per_device"] = chunks
    document["times"] = {kind: _times(draw, devices * chunks, zero) for kind in kinds}
    if draw.random() < 0.6:
        document["p2p"] = {"latency": _latency(draw, devices)}
    if draw.random() < 0.7:
        document["memory"] = memory(draw, document)
    return document


def _times(draw: Random, stages: int, zero: float) -> Any:
    times = [0 if draw.random() < zero else draw.randint(1, 9) for _ in range(stages)]
    if not any(times):
        times[0] = 3
    return times if draw.random() < 0.7 else max(times)


def _latency(draw: Random, devices: int) -> Any:
    if draw.random() < 0.6:
        return draw.choice([1, 2, 0.5])
    return [
        [0 if a == b else draw.randint(0, 4) for b in range(devices)]
        for a in range(devices)
    ]


def memory(draw: Random, document: Document) -> Document:
    """Draw activations of the stages and a capacity that is tight or not."""
    stages, devices = num_stages(document), document["num_devices"]
    unit = draw.choice([1, 2, 4])
    activation = unit
    if draw.random() < 0.4:
        activation = [unit * draw.choice([0.5, 1, 1.5]) for _ in range(stages)]
    amounts = by_stage(document, activation)
    least = sum(sorted(amounts)[-2:]) if stages > devices else max(amounts)
    capacity = least * draw.choice([0.75, 1, 1, 1.25, 1.25, 1.5, 2, 3])
    drawn: Document = {"capacity": capacity, "activation": activation}
    if draw.random() < 0.2:
        drawn["capacity"] = [
            capacity * draw.choice([1, 1, 1.5]) for _ in range(devices)
        ]
    if is_split(document) and draw.random() < 0.6:
        drawn["released_by_backward_weight"] = draw.choice([0, 0.25, 0.5, 1])
    if draw.random() < 0.2:
        drawn["static"] = unit * draw.choice([0.25, 0.5])
    return drawn


def unequal(draw: Random, document: Document) -> None:
    """Give each micro-batch times of its own."""
    count = document["num_microbatches"]
    for kind, entry in document["times"].items():
        document["times"][kind] = [
            [max(0, time + draw.randint(-2, 3)) for _ in range(count)]
            for time in by_stage(document, entry)
        ]


def endings(draw: Random, document: Document) -> None:
    """Add all-reduces or optimizer ops."""
    for field in draw.sample(["allreduce", "optimizer"], draw.choice([1, 2])):
        document[field] = [draw.randint(0, 5) for _ in range(num_stages(document))]


def long_ending(draw: Random, document: Document) -> None:
    """Let unequal micro-batches be followed by an op of one stage that outlasts many others."""
    unequal(draw, document)
    times = [0] * num_stages(document)
    times[draw.randrange(len(times))] = draw.randint(20, 60)
    document[draw.choice(["allreduce", "optimizer"])] = times


def links(draw: Random, document: Document) -> None:
    """Let transfers occupy links."""
    document["p2p"] = {
        "mode": draw.choice(["link", "nic"]),
        "bytes": draw.choice([1, 2, 4]),
        "bandwidth": draw.choice([1, 2]),
        "latency": draw.choice([0, 1]),
    }


def modes(
    draw: Random, document: Document, decide: Any = "stage", place: Any = None
) -> None:
    """Add a mode to recompute, or copies to the host where no `place` to recompute is asked."""
    if place is None and draw.random() < 0.35:
        copies(draw, document, decide)
        return
    least = _least_activation(draw, document)
    document["memory"]["recompute"] = {
        "modes": [
            {
                "name": "full",
                "time": draw.choice([1, 2, 3, 5]),
                "held": least * draw.choice([0, 0.25, 0.5]),
            }
        ],
        "decide": decide,
        "place": place or draw.choice(["before_backward", "anytime"]),
    }


def copies(draw: Random, document: Document, decide: Any = "stage") -> None:
    """Add copies of activations to the host and back."""
    least = _least_activation(draw, document)
    document["memory"]["offload"] = {
        "amount": least * draw.choice([0.5, 1]),
        "out": draw.choice([1, 2, 4]),
        "back": draw.choice([1, 2, 4]),
        "duplex": draw.random() < 0.5,
        "decide": decide,
    }


def _least_activation(draw: Random, document: Document) -> Any:
    document.setdefault("memory", memory(draw, document))
    return min(by_stage(document, document["memory"]["activation"]))


def mode_names(document: Document) -> list[str]:
    """Return the modes that a stage may have."""
    parts = document["memory"]
    names = [mode["name"] for mode in parts.get("recompute", {}).get("modes", ())]
    return ["keep", *names, *(["offload"] if "offload" in parts else [])]


def decided(document: Document, decide: Any) -> Document:
    """Return a pipeline with modes where others, or a list, decide."""
    parts = dict(document["memory"])
    for name in ("recompute", "offload"):
        if name in parts:
            parts[name] = parts[name] | {"decide": decide}
    return document | {"memory": parts}


def blocks(draw: Random, document: Document) -> None:
    """Let pairs of forwards and backwards run as one op, in some 60 to 110 % of their time."""
    times = {
        kind: by_stage(document, entry) for kind, entry in document["times"].items()
    }
    forward, *backwards = times.values()
    both = [sum(parts) for parts in zip(*backwards, strict=True)]
    document["overlap"] = {
        "time": [
            [
                None
                if draw.random() < 0.1
                else max(1, round((f + b) * draw.uniform(0.6, 1.1)))
                for b in both
            ]
            for f in forward
        ]
    }


def fillers(draw: Random, document: Document) -> None:
    """Add jobs in pieces, after or before ops of the pipeline."""
    kinds = "FIW" if is_split(document) else "FB"
    document["fillers"] = []
    for number in range(draw.randint(1, 2)):
        filler: Document = {
            "name": f"job{number}",
            "device": draw.randrange(document["num_devices"]),
            "pieces": [draw.randint(1, 5) for _ in range(draw.randint(1, 2))],
        }
        stage = draw.randrange(num_stages(document))
        microbatch = draw.randrange(document["num_microbatches"])
        end = draw.choice(["after", "before", "release", "free"])
        if end in {"after", "before"}:
            filler[end] = f"{draw.choice(kinds)}{stage}.{microbatch}"
        elif end == "release":
            filler[end] = draw.choice([3, 7])
        document["fillers"].append(filler)


def slices(draw: Random, document: Document) -> None:
    """Cut each micro-batch into two slices with times of their own."""
    document["slices"] = 2
    for kind, entry in document["times"].items():
        document["times"][kind] = [
            [time, max(0, time + draw.randint(-2, 3))]
            for time in by_stage(document, entry)
        ]


def collectives(draw: Random, document: Document) -> None:
    """Put a collective between the two halves of each forward."""
    document["collectives"] = {
        "forward": {"pieces": [1, 1], "alltoall": [draw.randint(1, 4), 0]}
    }


Part = Callable[[Random, Document], None]

PARTS: tuple[Part, ...] = (
    unequal,
    endings,
    long_ending,
    links,
    modes,
    blocks,
    fillers,
    slices,
    collectives,
)


def with_a_part(draw: Random, **options: Any) -> Document:
    """Draw a pipeline that has one more part, or none."""
    part = draw.choice([None, *PARTS])
    if part in {slices, collectives}:
        options["most_ops"] = 10
    document = pipeline(draw, **options)
    if part is not None:
        part(draw, document)
    return document
