"""Idle time is split into parts that add up, by what the next op waited for last."""

import pytest

from ppsolve.solver.views.page.idle import causes_of, idle_of
from tests.small import at, holding, op, small
from tests.views.page.cases import shipped, two_streams


def split(schedule):
    return {idle.name: idle for idle in idle_of(schedule, causes_of(schedule))}


def test_waits_name_the_stream_and_transfers_the_way():
    found = split(two_streams())
    x, y = found["x"], found["y"]
    assert (x.busy, x.fill, x.drain, x.transfers, dict(x.waits)) == (
        4,
        0,
        0,
        0,
        {"y": 4},
    )
    assert (y.busy, y.fill, y.drain, y.transfers, dict(y.waits)) == (
        4,
        0,
        2,
        1,
        {"x": 1},
    )


def test_fill_and_less_work():
    problem = small([op("a", 5, "x"), op("b", 1, "y")], [("a", "b")])
    found = split(at(problem, 0, 5))
    assert (found["y"].fill, found["y"].short, found["x"].drain) == (5, 4, 1)


def test_memory_and_choice():
    ops = [
        holding("a", 3, 2, "x"),
        op("b", 1, "y"),
        holding("c", 1, 2, "y"),
        op("d", 1, "y"),
    ]
    found = split(at(small(ops, capacity=2), 0, 0, 3, 6))
    assert (found["y"].memory, found["y"].chosen) == (2, 2)


@pytest.mark.parametrize("name", ["p2p_heavy/nic-40-4x8", "virtual_stages/v-4x8-cap6"])
def test_parts_add_up(name):
    shown = shipped(name)
    for idle in shown.idle:
        assert idle.busy + idle.total == shown.schedule.makespan
    if name.startswith("p2p"):
        assert sum(idle.transfers for idle in shown.idle) > 0
