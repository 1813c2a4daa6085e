"""Tables for cluster schedulers: the same answers as `optimize`, all at once."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.studies.goodput.model import GoodputModel, goodput_table

MODEL = GoodputModel((0.0213, 0.00187, 0.116, 0.0071, 0.0132, 0.0009, 2.75), (0.0002, 0.09), 128)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=5),
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.integers(128, 2000),
    st.integers(1, 60),
    st.booleans(),
)
def test_every_entry_is_the_optimum_of_its_allocation(
    nodes: list[int], replicas: list[int], most: int, low: int, accumulation: bool
) -> None:
    limits: Any = {
        "max_batch_size": most,
        "atomic_bsz_range": (low, 2 * low),
        "accumulation": accumulation,
    }
    table = goodput_table(MODEL, nodes, replicas, **limits)
    for row, some in enumerate(nodes):
        for column, many in enumerate(replicas):
            entry = (
                table.goodput[row, column],
                table.atomic_bsz[row, column],
                table.accum_steps[row, column],
            )
            expected = MODEL.optimize(some, many, **limits) if some <= many else (0.0, 0, 0)
            assert entry == pytest.approx(expected, rel=1e-12)
            assert (table.num_nodes[row, column], table.num_replicas[row, column]) == (some, many)


def test_ten_thousand_allocations() -> None:
    table = goodput_table(
        MODEL, range(1, 101), range(1, 101), max_batch_size=8192, atomic_bsz_range=(1, 256)
    )
    assert {getattr(table, field.name).shape for field in fields(table)} == {(100, 100)}
    impossible = table.num_nodes > table.num_replicas
    assert np.all(table.goodput[impossible] == 0)
    assert np.all(table.goodput[~impossible] > 0)
    assert np.all(
        table.batch_size == table.num_replicas * table.atomic_bsz * (table.accum_steps + 1)
    )
    assert np.all(table.batch_size <= 8192)
    assert table.speedup[0, 0] == 1
    np.testing.assert_allclose(table.speedup, table.goodput / table.goodput[0, 0])


def test_speedup_is_relative_to_one_replica_even_if_the_table_has_none() -> None:
    table = goodput_table(MODEL, 1, [2, 4], max_batch_size=512)
    alone = MODEL.optimize(1, 1, 512)[0]
    assert table.speedup.tolist() == (table.goodput / alone).tolist()


def test_speedup_is_relative_to_the_smallest_allocation_where_one_replica_is_not_allowed() -> None:
    table = goodput_table(MODEL, [2, 1], [8, 4, 1], max_batch_size=512, atomic_bsz_range=(None, 32))
    assert table.goodput[1, 2] == 0
    assert table.speedup[1, 1] == 1
    assert table.speedup[0, 0] == table.goodput[0, 0] / table.goodput[1, 1]


def test_a_table_of_nothing() -> None:
    table = goodput_table(MODEL, [3], [1, 2], max_batch_size=256)
    assert table.goodput.tolist() == table.speedup.tolist() == [[0, 0]]
    table = goodput_table(MODEL, 1, [1, 2], atomic_bsz_range=(1, 32))
    assert table.goodput.tolist() == table.speedup.tolist() == [[0, 0]]
    assert goodput_table(MODEL, [], []).goodput.shape == (0, 0)


def test_tables_are_read_only() -> None:
    table = goodput_table(MODEL, 1, [1, 2])
    for field in fields(table):
        with pytest.raises(ValueError, match="read-only"):
            getattr(table, field.name)[0, 0] = 1


@pytest.mark.parametrize(
    ("arguments", "limits", "message"),
    [
        (([0], [1]), {}, r"num_nodes\[0\]: expected a whole number >= 1, got 0"),
        ((1, [1, 1.5]), {}, r"num_replicas\[1\]: expected a whole number >= 1, got 1.5"),
        (([[1]], 1), {}, "num_nodes: expected a list of numbers, got 2 axes"),
        ((1, 1), {"max_batch_size": 1}, "max_batch_size: expected at least the initial batch size"),
        ((1, 1), {"atomic_bsz_range": (2, 1)}, r"atomic_bsz_range: expected \(least, greatest\)"),
    ],
)
def test_errors(arguments: Any, limits: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        goodput_table(MODEL, *arguments, **limits)
