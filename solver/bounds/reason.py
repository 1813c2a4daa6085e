"""A bound with the resource that it is about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ppsolve.models.core.problem import FREE


class Reason(NamedTuple):
    """A lower bound in ticks, and the resource whose ops prove it.

    Attributes
    ----------
    value : int
        Ticks.
    resource : int
        Its number; `FREE` where ops of several resources do.
    """

    value: int
    resource: int = FREE


def largest(found: Iterable[Reason]) -> Reason:
    """Return the largest bound, the first one of equals; 0 if there is none."""
    return max(found, key=lambda reason: reason.value, default=Reason(0))
