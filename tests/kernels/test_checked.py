"""Checked code raises where compiled code would do something else than Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from ppsolve.solver.kernels import cache, compilation
from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.native.machine import CheckedCode, machine_code

LEAST, MOST = -(2**63), 2**63 - 1


class Row(NamedTuple):
    values: Any


@part
def taken(values: Any, place: int) -> int:
    return values[place]


def read(row: Row, place: int) -> int:
    return taken(row.values, place)


def first_of(one: Any) -> int:
    return one[0]


def write(one: Any, place: int) -> None:
    one[0] = 9
    one[place] = 1


def add_to(one: Any, place: int) -> None:
    one[place] += 1


def step(first: int, size: int) -> int:
    total = 0
    for number in range(first, 9, size):
        total += number
    return total


def quotient(a: int, b: int) -> int:
    return a // b


def rest(a: int, b: int) -> int:
    return a % b


def right(a: int, b: int) -> int:
    return a >> b


def plus(a: int, b: int) -> int:
    a += b
    return a


def minus(a: int, b: int) -> int:
    return a - b


def times(a: int, b: int) -> int:
    return a * b


def negative(a: int, b: int) -> int:
    return -a


NUMBERS = (LEAST, LEAST + 1, -(2**31), -64, -2, -1, 0, 1, 2, 3, 31, 63, 64, 2**32, MOST)


def checked(function: Callable[..., Any], *arguments: Any) -> Any:
    code = machine_code(function, arguments, {taken}, is_checked=True)
    assert code is not None
    return code


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the answer, or the error that ends the call."""
    try:
        return function(*arguments)
    except (ArithmeticError, LookupError, ValueError) as error:
        return type(error)


@pytest.mark.parametrize("place", range(-5, 6))
def test_an_index_is_right_or_wrong_as_in_python(place: int) -> None:
    values = [5, 6, 7]
    row, plain = Row(np.array(values)), Row(values)
    assert outcome(checked(read, row, 0), row, place) == outcome(read, plain, place)
    for function in (write, add_to):
        lists, arrays = list(values), np.array(values)
        expected = outcome(function, lists, place)
        assert outcome(checked(function, arrays, 0), arrays, place) == expected
        assert arrays.tolist() == lists


def test_a_constant_index_is_checked_too() -> None:
    code = checked(first_of, np.zeros(1, int))
    assert code(np.array([4])) == 4
    with pytest.raises(IndexError):
        code(np.zeros(0, int))


def test_the_error_names_kernel_line_text_index_and_length() -> None:
    row = Row(np.zeros(3, int))
    with pytest.raises(IndexError) as raised:
        checked(read, row, 0)(row, -4)
    line = taken.__code__.co_firstlineno + 2
    where = f"kernel read: {__name__}, line {line}: values[place]"
    assert str(raised.value) == f"{where}: index -4, length 3"
    with pytest.raises(ZeroDivisionError, match=r"a // b: operands 7 and 0$"):
        checked(quotient, 1, 1)(7, 0)


@pytest.mark.parametrize(
    "function", [quotient, rest, right, plus, minus, times, negative]
)
def test_operands_are_right_or_wrong_as_in_python(
    function: Callable[[int, int], int],
) -> None:
    code = checked(function, 1, 1)
    for a, b in itertools.product(NUMBERS, NUMBERS):
        expected = (
            outcome(function, a, b) if function is not right or b < 64 else ValueError
        )
        if isinstance(expected, int) and not LEAST <= expected <= MOST:
            expected = OverflowError
        if function is rest and (a, b) == (
            LEAST,
            -1,
        ):  # the processor cannot divide these
            expected = OverflowError
        assert outcome(code, a, b) == expected, (a, b)


def test_a_range_that_stands_still_is_an_error() -> None:
    assert checked(step, 1, 1)(5, 2) == step(5, 2)
    assert outcome(checked(step, 1, 1), 5, 0) is ValueError


def test_checked_code_is_neither_stored_nor_taken_from_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    checked(quotient, 1, 1)
    assert list(tmp_path.iterdir()) == []
    machine_code(quotient, (1, 1), set())
    assert len(list(tmp_path.iterdir())) == 1
    assert isinstance(checked(quotient, 1, 1), CheckedCode)
    assert not isinstance(machine_code(quotient, (1, 1), set()), CheckedCode)


@pytest.mark.parametrize(
    "mode, kind", [("checked", True), ("always", False), ("", False)]
)
def test_the_environment_asks_for_checked_code(
    mode: str, kind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "folder", lambda: None)
    monkeypatch.setenv(compilation.SWITCH, mode)
    monkeypatch.setitem(compilation._state, "compiled", True)
    kernel = Kernel(first_of)
    assert kernel(np.array([4])) == 4
    assert isinstance(kernel._machine_code, CheckedCode) == kind
