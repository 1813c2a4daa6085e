"""A question that can be asked in several ways, and how to ask it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import ppsolve
from tests.agreement.claims import Claim, claim_of, contradictions, differences

Way = Callable[[Any], Claim | None]
"""Asks about a case; None where it cannot be asked in this way."""

LIMITS: dict[str, Any] = {"time_limit": 5, "workers": 1}
"""Of one search. What it leaves open makes a test weaker, never wrong."""


@dataclass(frozen=True)
class Question:
    """A question about random cases, asked in several ways that must not contradict each other."""

    name: str
    draw: Callable[[Random], Any]
    ways: Mapping[str, Way]
    count: int  # cases of the default seed
    is_same: bool = (
        False  # whether the ways give the same figures, not only claims that agree
    )

    def case(self, number: int, seed: int = 0) -> Any:
        """Return a case, the same for the same numbers."""
        return self.draw(Random(f"{self.name} {seed} {number}"))

    def disagreements(self, case: Any) -> list[str]:
        """Return what two ways say of a case that cannot both be true, or is not the same."""
        answers = {name: way(case) for name, way in self.ways.items()}
        claims = {
            name: answer for name, answer in answers.items() if answer is not None
        }
        return differences(claims) if self.is_same else contradictions(claims)


def solved(document: Any, **options: Any) -> Claim:
    """Return what `optimize` claims of an instance."""
    instance = ppsolve.parse_instance(document)
    return claim_of(ppsolve.optimize(instance, **(LIMITS | options)))
