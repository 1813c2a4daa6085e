"""Translated kernels do what Python does, and what has no translation is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from ppsolve.solver.kernels import cache
from ppsolve.solver.kernels.native.body import UntranslatableError
from ppsolve.solver.kernels.native.machine import machine_code

NUMBERS = (-7, -3, -1, 0, 1, 2, 3, 8, 2**40)
LIMIT = 5


class Inner(NamedTuple):
    values: Any
    weight: int


class Outer(NamedTuple):
    inner: Inner
    count: int
    room: Any


def divide(a: int, b: int) -> int:
    return (a // b) * 1000 + a % b


def shift(a: int, b: int) -> int:
    return (a >> 2) + (a | b) - (b >> 1)


def by_constants(a: int, b: int) -> int:
    return a // 8 + 3 * (a % 8) + b // -3 + 7 * (b % 5)


def decide(a: int, b: int) -> int:
    found = a or b
    both = a and b
    if ((a < b and b <= LIMIT) or not b) and a != 3:
        return 100 + found
    return found if a == 1 or a == b or a == -1 else both - (not a) + (a == b)


def smallest(a: int, b: int) -> int:
    return min(a, b, 2) * 5 + max(a, -b) + int(bool(a)) + (a if a > b else -b)


def loop(a: int, b: int) -> int:
    total, last = 0, -1
    for number in range(a, b, 2):
        if number % 3 == 0:
            continue
        if total > 40:
            break
        number += 1
        total, last = total + number, number
    for number in range(LIMIT, 0, -2):
        total = total * 2 + number
    for number in range(0, 9, max(1, b % 4)):
        total += number
    for number in (a, b, total):
        if number < 0:
            continue
        last += number
        if last > 50:
            break
    while True:
        total -= 9
        if total < 0:
            return last + total
        last += 1


def first_above(values: Any, least: int) -> int:
    for value in values:
        if value > least:
            return value
    return -1


def both(a: int, b: int) -> tuple[int, bool]:
    if a > b:
        return a - b, True
    a += 1
    return b - a, False


def parts(a: int, b: int) -> int:
    difference, is_above = both(a, b)
    other, _ = both(b, a)
    a = 4 if is_above else 5
    return difference + 2 * other + a + 100 * is_above


def walk_over(numbers: Any, one: Any) -> int:
    total = 0
    for number in numbers:
        total += one[number]
    return total


def fields(outer: Outer, one: Any, patience: int) -> int:
    inner, values = outer.inner, outer.inner.values
    swapped = values
    if outer.count > 2:
        swapped = one
    one[0], one[-1] = one[-1], one[0]
    one[1] += values[outer.count]
    outer.room[0] = first_above(values, 2) + walk_over(range(len(one)), swapped)
    made = Inner(one, 5)
    return len(made.values) + (
        inner.weight * values[1] - patience * 5 <= made.weight * 7
    )


def nothing(one: Any) -> None:
    if one[0] > 0:
        return
    one[0] = 5


PARTS: set[Callable[..., Any]] = {first_above, both, walk_over}


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "folder", lambda: None)


@pytest.mark.parametrize("is_checked", [False, True])
@pytest.mark.parametrize(
    "function", [divide, shift, by_constants, decide, smallest, loop, parts]
)
def test_numbers_are_as_in_python(
    function: Callable[[int, int], int], is_checked: bool
) -> None:
    code = machine_code(function, (1, 1), PARTS, is_checked=is_checked)
    for a, b in itertools.product(NUMBERS, NUMBERS[:-1]):
        if b != 0 or function is not divide:
            assert code(a, b) == function(a, b), (a, b)


@pytest.mark.parametrize("is_checked", [False, True])
@pytest.mark.parametrize("count, patience", [(2, 0), (3, 10), (1, -9)])
def test_records_and_arrays_are_as_in_python(
    count: int, patience: int, is_checked: bool
) -> None:
    def arguments() -> tuple[Outer, Any, int]:
        values = np.array([1, 2, 3, 4])
        return (
            Outer(Inner(values, 2), count, np.zeros(1, int)),
            np.array([5, 6, 7, 1]),
            patience,
        )

    code = machine_code(fields, arguments(), PARTS, is_checked=is_checked)
    made, expected = arguments(), arguments()
    assert code(*made) == fields(*expected)
    assert made[1].tolist() == expected[1].tolist()
    assert made[0].room.tolist() == expected[0].room.tolist()


def total(inner: Inner) -> int:
    return walk_over(range(len(inner.values)), inner.values)


def test_a_record_is_read_anew_where_it_is_another_one() -> None:
    code = machine_code(total, (Inner(np.arange(4), 1),), PARTS)
    for count in (4, 4, 6, 0):
        inner = Inner(np.arange(count), 1)
        assert code(inner) == code(inner) == sum(range(count))


def test_nothing_is_returned_as_none_and_arrays_of_any_layout_are_written() -> None:
    table = np.zeros((3, 2), dtype=np.int32)
    code = machine_code(nothing, (table[:, 1],), set())
    assert code(table[:, 1]) is None
    assert table.tolist() == [[0, 5], [0, 0], [0, 0]]


def unknown_name(a: int) -> int:
    return missing(a)  # type: ignore[name-defined]  # noqa: F821


def no_part(a: int) -> int:
    return divide(a, 2)


def text(a: int) -> int:
    return len("abc") + a


def no_name() -> int:
    missing()  # type: ignore[name-defined]  # noqa: F821
    return 1


def two_types(a: int) -> int:
    b = 1
    if a > 0:
        b = (1, 2)  # type: ignore[assignment]
    return b


def floats(a: int) -> int:
    return (a > 0.5) + 1


def three_values(a: int) -> int:
    first, second = (a, 1, 2)  # type: ignore[misc]
    return first + second


def of_a_loop(a: int) -> int:
    for _ in range(a):
        a += 1
    else:
        a = 3
    return a


REFUSED = [
    unknown_name,
    no_name,
    no_part,
    text,
    two_types,
    floats,
    three_values,
    of_a_loop,
]


@pytest.mark.parametrize("function", REFUSED)
def test_what_has_no_translation_is_refused(function: Callable[..., int]) -> None:
    with pytest.raises(UntranslatableError):
        machine_code(function, (1,) * function.__code__.co_argcount, PARTS)


@pytest.mark.parametrize("given", [0.5, Inner(np.arange(4), 0.5)])  # type: ignore[arg-type]
def test_floats_are_no_arguments(given: Any) -> None:
    with pytest.raises(UntranslatableError, match=r"the float 0\.5"):
        machine_code(total, (given,), PARTS)


def over_one_item(a: int, b: int) -> int:
    for first, second in ((a, b),):
        a += 10 * first + second
    for number in (b, a):
        a += 3 * number
    return a


def test_a_loop_over_a_tuple_may_begin_with_arguments() -> None:
    assert machine_code(over_one_item, (1, 1), set())(4, 5) == over_one_item(4, 5)
