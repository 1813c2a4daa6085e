"""Whole units, and the numbers in names of devices."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import FREE
from ppsolve.solver.structure.holds import whole_units
from ppsolve.solver.structure.owners import owners
from tests.small import op, small


def test_amounts_become_multiples_of_their_largest_common_unit() -> None:
    whole, unit = whole_units((Fraction(1, 2), Fraction(2, 3)), 2)
    assert (whole.tolist(), unit) == ([3, 4], 6)


@pytest.mark.parametrize(("amount", "count"), [(2**60, 4), (2**70, 1), (2**70, 0)])
def test_sums_beyond_64_bits_are_of_python_integers(amount: int, count: int) -> None:
    whole, _ = whole_units((Fraction(1), *[Fraction(amount)] * 4), count)
    assert whole.sum() == 4 * amount + 1


def test_sums_within_64_bits_are_of_int64() -> None:
    assert whole_units((Fraction(2**60),), 3)[0].dtype == np.int64


def test_resources_of_a_graph_belong_to_the_device_that_ends_their_name() -> None:
    names = ["device 1", "link 0", "device 00", "r1", "device 9", " 1"]
    problem = small([op(f"a{number}", 1, name) for number, name in enumerate(names)])
    assert sorted(problem.resource_names) == sorted(names)
    devices = {str(key): key.device for key in problem.resources}
    assert devices == {**dict.fromkeys(names), "device 1": 1, "link 0": 0}


def test_a_resource_belongs_to_the_device_of_its_key_else_to_that_of_its_first_op() -> (
    None
):
    problem = small([op("a", 1, "r0"), op("b", 1, "r1"), op("c", 1, "r2")])
    problem = replace(problem, device=np.array([2, 1, FREE]))
    assert owners(problem) == [2, 1, 0]
    keys = DeviceName("r"), DeviceName("link", (3, 1)), DeviceName("r7")
    assert owners(replace(problem, resources=keys)) == [2, 3, 0]
