"""The named heuristics of programs: Inductor's passes, and list scheduling on both streams."""

from __future__ import annotations

from ppsolve.solver.heuristics.heuristic import (
    OURS,
    Heuristic,
    HeuristicFunction,
    Proposal,
    Request,
)
from ppsolve.solver.overlap.programs import plan_of_rule

A_PROGRAM = "a program of kernels and collectives (kind overlap)"

INDUCTOR = "PyTorch Inductor: torch/_inductor/comms.py"

_PASSES = {
    "original": "the program as it is",
    "sink-waits": "Inductor's sink_waits: each wait down to its first user",
    "raise-comms": "Inductor's raise_comms: each collective up to its last dependency",
    "reorder-compute": "Inductor's reorder_compute_for_overlap: kernels behind collectives",
    "inductor-default": "reorder-compute, sink-waits, raise-comms",
    "inductor-tests": "sink-waits, raise-comms, reorder-compute",
    "inductor-list-sink": "Inductor's list scheduling, waits last",
    "inductor-list-raise": "Inductor's list scheduling, collectives first",
    "inductor-list-reorder": "Inductor's list scheduling, both, kernels behind collectives",
}

_TWO_STREAM = {
    "two-stream-tail": "longest path below first",
    "two-stream-communication": "most communication on a path below first",
    "two-stream-next-collective": "what the earliest collective needs first",
    "two-stream-program": "program order first",
}


def _rule(name: str) -> HeuristicFunction:
    def propose(request: Request) -> Proposal:
        return plan_of_rule(name, request.instance, request.problem)

    return propose


OVERLAP_HEURISTICS = (
    *(
        Heuristic(
            name + suffix,
            summary + note,
            _rule(name + suffix),
            A_PROGRAM,
            source=OURS if name == "original" else INDUCTOR,
        )
        for suffix, note in (("", ""), ("-stable", "; ties by program order"))
        for name, summary in _PASSES.items()
        if (name, suffix) != ("original", "-stable")
    ),
    *(
        Heuristic(
            name + suffix,
            f"list scheduling on both streams, {summary}{note}",
            _rule(name + suffix),
            A_PROGRAM,
        )
        for suffix, note in (("", ""), ("-fit", "; kernels that fit behind a collective"))
        for name, summary in _TWO_STREAM.items()
    ),
    Heuristic(
        "latest-launch",
        "the best two-stream list, each collective launched as late as it stays hidden",
        _rule("latest-launch"),
        A_PROGRAM,
    ),
)
"""In the order of reports."""
