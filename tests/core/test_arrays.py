"""Arrays of numbers as callers give them."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ppsolve.models.core.arrays import (
    allocation,
    as_array,
    as_number,
    broadcast,
    plain,
    whole_numbers,
)
from ppsolve.models.documents.errors import InputError


def test_numbers_of_any_kind() -> None:
    found = as_array("x", [[1, Decimal("0.5")], [Fraction(1, 4), np.float32(2)]])
    assert found.tolist() == [[1, 0.5], [0.25, 2]]
    assert (as_array("x", 3).shape, as_number("x", Decimal(3))) == ((), 3.0)


def test_whole_numbers_are_exact() -> None:
    found = whole_numbers("x", [1, 10**15, 7.0])
    assert (found.dtype, found.tolist()) == (np.int64, [1, 10**15, 7])
    assert whole_numbers("x", 0, least=0) == 0


def test_scalars_in_scalars_out() -> None:
    for value in (np.float64(1.5), np.array(1.5), np.array(7), np.array(True)):
        assert type(plain(value)) in {float, int, bool}
    assert plain(np.array([1, 2])).tolist() == [1, 2]


def test_allocations_broadcast() -> None:
    nodes, replicas = allocation([[1], [2]], [2, 4])
    assert (nodes.tolist(), replicas.tolist()) == ([[1, 1], [2, 2]], [[2, 4], [2, 4]])
    assert [int(number) for number in allocation(1, 3)] == [1, 3]


@pytest.mark.parametrize(
    ("value", "bounds", "message"),
    [
        ([1, -1], {}, r"x\[1\]: expected a number >= 0, got -1"),
        ([[1], [-(10**400)]], {}, r"x\[1\]\[0\]: expected a number >= 0, got -inf"),
        ([10**400], {}, r"x\[0\]: expected a number >= 0 and at most 1e15, got inf"),
        ([1, True], {}, r"x\[1\]: expected a number, got true"),
        (Decimal("sNaN"), {}, "x: expected numbers that form an array"),
        ([1.5], {"whole": True}, r"x\[0\]: expected a whole number >= 0, got 1.5"),
        (3, {"most": 2}, "x: expected a number >= 0 and at most 2, got 3"),
        (1, {"above": 1}, "x: expected a number > 1, got 1"),
        ([None], {}, r"x\[0\]: expected a number, got null"),
        (np.array(["1"]), {}, r'x\[0\]: expected a number, got the text "1"'),
    ],
)
def test_what_is_refused(value: Any, bounds: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        as_array("x", value, **bounds)


def test_what_goes_together() -> None:
    with pytest.raises(
        InputError, match=r"^a, b: expected shapes that .*, got \(2,\), \(3,\)$"
    ):
        broadcast(a=np.ones(2), b=np.ones(3))
    with pytest.raises(
        InputError, match=r"^num_nodes\[1\]: expected at most as many nodes as rep"
    ):
        allocation(3, [3, 2])
    with pytest.raises(
        InputError, match=r"^num_replicas: expected a whole number >= 1, got 0$"
    ):
        allocation(1, 0)
