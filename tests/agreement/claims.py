"""What answers say of an optimum, and which of them cannot both be true."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ppsolve.models.core.result import Status

Amount = Fraction | float
"""An exact number, or an infinite one."""


@dataclass(frozen=True)
class Claim:
    """The optimum is at least `bound`, and a schedule of `value` exists.

    INFEASIBLE is an infinite bound, no schedule an infinite value; OPTIMAL is both equal.
    """

    bound: Amount
    value: Amount

    def __str__(self) -> str:
        """Return the claim in words."""
        if self.bound == math.inf:
            return "infeasible"
        if self.bound == self.value:
            return f"optimal {float(self.value):.12g}"
        return f"between {float(self.bound):.12g} and {float(self.value):.12g}"

    def divided(self, factor: Fraction | int) -> Claim:
        """Return the claim about values that are smaller by a factor."""
        return Claim(_divided(self.bound, factor), _divided(self.value, factor))


def _divided(amount: Amount, factor: Fraction | int) -> Amount:
    return amount / factor if isinstance(amount, Fraction) else amount


def exact(figure: Any) -> Fraction:
    """Return the number whose shortest decimal a figure is."""
    return Fraction(str(figure))


def claim(status: Status, value: Any, bound: Any) -> Claim:
    """Return the claim of a status with its figures, None where there is none."""
    if status is Status.INFEASIBLE:
        return Claim(math.inf, math.inf if value is None else exact(value))
    reached = math.inf if value is None else exact(value)
    if status is Status.OPTIMAL:
        return Claim(reached, reached)
    return Claim(-math.inf if bound is None else exact(bound), reached)


def claim_of(result: Any) -> Claim:
    """Return the claim of a result, or of a row of a study."""
    return claim(result.status, result.value, result.bound)


def reached(value: Amount | None) -> Claim:
    """Return that a schedule of this value exists, and nothing about better ones."""
    return Claim(-math.inf, math.inf if value is None else value)


def best_of(claims: Iterable[Claim]) -> Claim:
    """Return the claim about the best of several questions, from those about each."""
    listed = list(claims)
    return Claim(min(each.bound for each in listed), min(each.value for each in listed))


def worst_of(claims: Iterable[Claim]) -> Claim:
    """Return the claim about what ends last of several parts, from those about each."""
    listed = list(claims)
    return Claim(max(each.bound for each in listed), max(each.value for each in listed))


def contradictions(claims: Mapping[str, Claim]) -> list[str]:
    """Return each pair of claims about one optimum that cannot both be true, in words."""
    return [
        f"{low}: {claims[low]}, but {high}: {claims[high]}"
        for low in claims
        for high in claims
        if claims[low].bound > claims[high].value
    ]


def differences(claims: Mapping[str, Claim]) -> list[str]:
    """Return each claim that is not the first one, of ways whose figures have to be the same."""
    first, *others = claims
    return [
        f"{first}: {claims[first]}, but {other}: {claims[other]}"
        for other in others
        if claims[other] != claims[first]
    ]
