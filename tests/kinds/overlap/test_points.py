"""Programs whose waits and launches are points of the compute stream: their optima are true.

CP-SAT's strong propagation refuted feasible ones, see `tests/exact/test_parameters.py`.
"""

from __future__ import annotations

import json
import random
from fractions import Fraction
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from tests.kinds.overlap.bruteforce import Document, Graph, optimum, program
from tests.kinds.overlap.test_exact import EXACT_ONLY, assert_sound, near
from tests.marks import later
from tests.paths import ROOT

CASES = json.loads(
    (ROOT / "tests/data/overlap_points/cases.json").read_text(encoding="utf-8")
)
BATCH = 20
FEW, MANY = range(1), range(1, 100)
SETTINGS = [
    {"workers": workers, "seed": seed, "deterministic": deterministic}
    for workers in (1, 2, 8)
    for seed in range(5)
    for deterministic in ((False, True) if workers == 1 else (False,))
]


def crowded(rng: random.Random) -> Document:
    """Return a random program whose cap makes many waits and launches points."""
    size, deps = rng.randint(3, 5), rng.choice([0.2, 0.5])
    nodes: list[str] = []
    waits: list[str] = []
    usable: list[str] = []
    for number in range(size):
        letter = rng.choice("kcc") if number else "c"
        name = f"{letter}{number}"
        group = f" g={rng.choice('xy')}" if letter == "c" else ""
        asked = [own for own in usable if rng.random() < deps]
        length = rng.choice([0, *range(1, 9)])
        nodes.append(
            f"{name} {length} b={rng.choice([1, 1, 2, 3, 8])}{group} <- {' '.join(asked)}"
        )
        if letter == "k":
            usable.append(name)
            continue
        held = [own for own in usable if rng.random() < deps / 2]
        waits.append(f"w{number} <- {' '.join([name, *held])}")
        if rng.random() < 0.5:
            usable.append(f"w{number}")
            nodes.append(waits.pop())
    document = program(
        *nodes, *waits, collective_order=rng.choice(["free", "free", "frozen"])
    )
    return document | _caps(rng, Graph(document))


def _caps(rng: random.Random, graph: Graph) -> Document:
    peak = graph.peak(graph.replay(tuple(range(graph.size))))
    caps: Document = {}
    if rng.random() < 0.8:
        caps["max_live_bytes"] = max(
            1, round(float(peak) * rng.choice([0.6, 0.7, 0.8, 0.9, 1.0]))
        )
    if not caps or rng.random() < 0.4:
        each = {graph.group[comm]: rng.choice([1, 2]) for comm in graph.comms}
        caps["max_in_flight"] = rng.choice([1, 2, each])
    return caps


def solve(document: Document, **options: Any) -> Any:
    limits = {"time_limit": 30.0, "workers": 1} | options
    return ppsolve.optimize(OverlapInstance.parse(document), **limits)


@pytest.mark.parametrize(
    "settings",
    [
        *SETTINGS[:1],
        *later("fuzz", SETTINGS[1:]),
    ],
    ids=str,
)
def test_programs_with_points_have_their_optima(settings: dict[str, Any]) -> None:
    for case in CASES["cases"]:
        result = solve(case["instance"], **settings)
        assert result.status is Status.OPTIMAL, case["instance"]["name"]
        assert near(result.value, Fraction(case["expected"]["makespan"])), case[
            "instance"
        ]["name"]


@pytest.mark.parametrize("number", [*FEW, *later("fuzz", MANY)])
def test_random_programs_with_caps_are_never_solved_wrongly(number: int) -> None:
    rng = random.Random(number)
    for place in range(BATCH):
        document = crowded(rng)
        best = optimum(document).makespan
        result = solve(document, heuristics=EXACT_ONLY if place % 2 else None)
        assert_sound(document, result, best)
        assert result.status is (
            Status.INFEASIBLE if best is None else Status.OPTIMAL
        ), document
        assert best is None or near(result.value, best), document
