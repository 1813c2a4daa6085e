"""Balanced cuts of sequence slices, against all cuts."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import pytest

import ppsolve
from ppsolve.models.kinds.pipeline.slices import unit_sums
from tests.marks import first

COSTS: list[dict[str, Any]] = [
    {"per_token": 1},
    {"per_token": 2, "per_square": 0.125},
    {"per_token": 0.5, "per_square": 1, "constant": 3},
    {"per_square": 0.5},
    {"constant": 2},
]


def cut_tokens(
    lengths: list[Any], count: int, costs: list[dict[str, Any]]
) -> list[int]:
    instance = ppsolve.PipelineInstance.parse(
        {
            "kind": "pipeline",
            "num_devices": len(costs),
            "num_microbatches": len(lengths),
            "lengths": lengths,
            "slices": {"count": count, "cuts": "balanced"},
            "times": {"forward": costs, "backward": 1},
        }
    )
    sums = unit_sums(instance)
    assert sums is not None
    return list(sums.tokens)


def tokens_costs(row: list[int], costs: list[dict[str, Any]]) -> list[Fraction]:
    """Cost of each token: the n-th one of its sequence adds n² - (n - 1)² squares."""
    linear, square = (
        sum(Fraction(cost.get(name, 0)) for cost in costs)
        for name in ("per_token", "per_square")
    )
    return [linear + square * (2 * n + 1) for length in row for n in range(length)]


def slice_costs(tokens: list[Fraction], bounds: tuple[int, ...]) -> list[Fraction]:
    return [
        sum(tokens[a:b], Fraction(0)) for a, b in pairwise((0, *bounds, len(tokens)))
    ]


@pytest.mark.parametrize("seed", first(24, range(1500)))
def test_no_other_cut_has_a_cheaper_costliest_slice(seed: int) -> None:
    rng = random.Random(seed)
    row = [rng.randint(1, 6) for _ in range(rng.choice([1, 2, 3]))]
    row[0] += rng.randint(1, 8)
    count = rng.randint(1, min(5, sum(row)))
    costs = rng.choices(COSTS, k=rng.randint(1, 2))
    cut = cut_tokens([row if len(row) > 1 else row[0]], count, costs)
    assert len(cut) == count
    assert min(cut) >= 1
    assert sum(cut) == sum(row)
    tokens = tokens_costs(row, costs)
    bounds = tuple(sum(cut[:place]) for place in range(1, count))
    every = combinations(range(1, len(tokens)), count - 1)
    assert max(slice_costs(tokens, bounds)) == min(
        max(slice_costs(tokens, b)) for b in every
    )


def test_a_cut_is_not_at_the_nearest_token_where_that_makes_a_costlier_slice() -> None:
    """Two packed sequences, whose tokens cost 1, 3, 5 and 1, 3, 5: a third of all is 6.

    Nearest to 6 and 12 are 4 and 13, whose slices cost 4, 9 and 5; better are 4, 6 and 8.
    """
    assert cut_tokens([[3, 3]], 3, [{"per_square": 1}]) == [2, 2, 2]


def test_of_cuts_that_are_as_good_the_ends_are_nearest_to_equal_shares() -> None:
    """Ten tokens in three slices of at most four: of 2, 4, 4; 3, 3, 4; 3, 4, 3 and so on."""
    assert cut_tokens([10], 3, [{"per_token": 1}]) == [3, 4, 3]
