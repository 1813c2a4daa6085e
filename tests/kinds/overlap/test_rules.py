"""The checker against the rules of programs as read from the documents alone."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

import ppsolve
from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from tests.kinds.overlap.bruteforce import Document, alike, random_document, with_caps
from tests.kinds.overlap.rules import Rules

Starts = dict[str, Fraction]


def drawn(seed: int) -> Document:
    """Return a random program: without caps, with caps, or of alike parts."""
    rng = random.Random(seed)
    document = random_document(rng, most=8) if seed % 4 else alike(rng)
    return with_caps(rng, document) if seed % 3 else document


def tick(rules: Rules) -> Fraction:
    return Fraction(
        1, math.lcm(*(length.denominator for length in rules.length.values()))
    )


def scheduled(instance: OverlapInstance, rules: Rules, heuristic: str) -> Starts:
    """Return the starts of a heuristic's schedule, which may exceed a cap."""
    entry = ppsolve.simulate(instance, heuristic)
    # Where a wait uses a wait, `sink_waits` may turn them round as published: no schedule then.
    assume(entry.status is not HeuristicStatus.FAILED)
    assert entry.schedule is not None
    unit = tick(rules)
    return {op.id: round(Fraction(op.start) / unit) * unit for op in entry.schedule.ops}


def document_of(rules: Rules, starts: Starts) -> dict[str, Any]:
    ops = [
        {"id": name, "start": float(start), "end": float(start + rules.length[name])}
        for name, start in starts.items()
    ]
    return {"time_unit": "us", "ops": ops}


def agree(instance: OverlapInstance, rules: Rules, starts: Starts) -> set[str]:
    """Compare the checker with the rules; return what is broken."""
    found = {v.rule for v in ppsolve.check(instance, document_of(rules, starts))}
    broken = rules.broken(starts)
    if broken & {"start", "precedence"}:
        # What is held where uses come before outputs is nobody's claim.
        assert found - {"memory"} == broken - {"memory"}
    else:
        assert found == broken
    return broken


def moved(rng: random.Random, starts: Starts, unit: Fraction) -> Starts:
    """Return starts of which one is moved, two change places, or all after a time come later."""
    names = sorted(starts)
    one, other = rng.choice(names), rng.choice(names)
    by = rng.choice((1, -1, 2, -3, 7)) * unit * rng.choice((1, 1, 4))
    kind = rng.randrange(4)
    if kind == 0:
        return {**starts, one: starts[one] + by}
    if kind == 1:
        return {**starts, one: starts[other], other: starts[one]}
    since = starts[one] + (kind == 2) * unit
    return {name: at + abs(by) * (at >= since) for name, at in starts.items()}


@settings(max_examples=14, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10_000), st.sampled_from(["original", "sink-waits", "list-tail"]))
@example(1763, "sink-waits")
def test_the_checker_is_the_rules(seed: int, heuristic: str) -> None:
    rng = random.Random(seed)
    document = drawn(seed)
    instance, rules = OverlapInstance.parse(document), Rules(document)
    starts = scheduled(instance, rules, heuristic)
    assert agree(instance, rules, starts) <= {"memory"}
    for _ in range(8):
        changed = starts
        for _ in range(rng.choice((1, 1, 2))):
            changed = moved(rng, changed, tick(rules))
        agree(instance, rules, changed)
