"""Questions about a changed pipeline: a row of a what-if, a point of a curve, or by itself."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

import ppsolve
from tests.agreement import draws
from tests.agreement.claims import Claim, claim_of
from tests.agreement.draws import Document
from tests.agreement.graphs import devices_of
from tests.agreement.question import LIMITS, Question, solved

# Each draws what a pipeline needs for a change, and returns the value of its option and the
# changed pipeline.


def _one_microbatch_more(draw: Random, document: Document) -> tuple[str, Document]:
    count = document["num_microbatches"] + 1
    return str(count), document | {"num_microbatches": count}


def _larger_capacity(draw: Random, document: Document) -> tuple[str, Document]:
    document.setdefault("memory", draws.memory(draw, document))
    capacity = float(max(np.atleast_1d(document["memory"]["capacity"]))) + 1
    return str(capacity), document | {
        "memory": document["memory"] | {"capacity": capacity}
    }


def _slower_transfers(draw: Random, document: Document) -> tuple[str, Document]:
    latency = draw.choice([1, 2])
    document["p2p"] = {"latency": latency}
    return "x2", document | {"p2p": {"latency": 2 * latency}}


def _slow_device(draw: Random, document: Document) -> tuple[str, Document]:
    factors = [1.5 if device == 0 else 1 for device in devices_of(document)]
    times = {
        kind: [
            t * f for t, f in zip(draws.by_stage(document, entry), factors, strict=True)
        ]
        for kind, entry in document["times"].items()
    }
    return "0x1.5", document | {"times": times}


def _one_mode(draw: Random, document: Document) -> tuple[str, Document]:
    draws.modes(draw, document, decide="stage")
    return "all", draws.decided(document, "all")


def _longer_fillers(draw: Random, document: Document) -> tuple[str, Document]:
    draws.fillers(draw, document)
    longer = [
        filler | {"pieces": [2 * time for time in filler["pieces"]]}
        for filler in document["fillers"]
    ]
    return "x2", document | {"fillers": longer}


CHANGES: dict[str, Callable[[Random, Document], tuple[str, Document]]] = {
    "microbatches": _one_microbatch_more,
    "capacity": _larger_capacity,
    "comm": _slower_transfers,
    "slow": _slow_device,
    "recompute": _one_mode,
    "fillers": _longer_fillers,
}


def _case(draw: Random) -> Document:
    base = draws.pipeline(draw, most_ops=10, placements=("linear", "interleaved"))
    axis = draw.choice(list(CHANGES))
    value, changed = CHANGES[axis](draw, base)
    return {"base": base, "axis": axis, "value": value, "changed": changed}


def _row(case: Document) -> Claim:
    base = ppsolve.parse_instance(case["base"])
    limits = LIMITS | {"time_limit": 2 * LIMITS["time_limit"]}
    return claim_of(
        ppsolve.what_if(base, {case["axis"]: case["value"]}, **limits).rows[1]
    )


def _point(case: Document) -> Claim | None:
    if case["axis"] not in {"microbatches", "capacity"}:
        return None
    base = ppsolve.parse_instance(case["base"])
    return claim_of(
        ppsolve.curve(base, case["axis"], [case["value"]], **LIMITS).points[0]
    )


def _changed(case: Document) -> Claim:
    return solved(case["changed"])


WHAT_IFS = (
    Question(
        "what if",
        _case,
        {"row": _row, "point of a curve": _point, "changed": _changed},
        count=16,
    ),
)
