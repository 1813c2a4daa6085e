"""Instances within an instance, which are solved before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ppsolve.models.instances import Instance


@dataclass(frozen=True)
class InnerInstances:
    """Instances whose values are numbers of the one that holds them, by name.

    The optimum of the outer instance must not fall where one of these numbers grows: then their
    bounds give a bound of both.
    """

    instances: dict[str, Instance]
    field: str  # of the outer instance, that holds them
    results: str  # field of the outer result, that holds theirs
    with_values: Callable[
        [Mapping[str, Any]], Instance
    ]  # the outer instance, numbers filled in
