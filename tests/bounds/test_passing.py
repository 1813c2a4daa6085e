"""The way of one micro-batch past all others: by hand, and never above the optimum."""

from __future__ import annotations

import numpy as np
import pytest

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds import passing as module
from ppsolve.solver.bounds.flow.flow import Flow, Paths, flow_of
from ppsolve.solver.bounds.params import BoundsParams
from ppsolve.solver.bounds.passing import passing
from tests.bounds.flow.drawn import drawn, problem_of
from tests.bruteforce import brute_force
from tests.marks import first

Table = list[list[int]]


def flow(forward: Table, backward: Table, latency: int = 0) -> Flow:
    times = {"forward": forward, "backward": backward}
    size = {"num_devices": len(forward), "num_microbatches": len(forward[0])}
    found = flow_of(
        lower(PipelineInstance(**size, times=times, p2p={"latency": latency}))
    )
    assert found is not None
    return found


def bound_of(forward: Table, backward: Table, latency: int = 0) -> int:
    return passing(Paths(flow(forward, backward, latency)))


def test_one_that_is_before_all_on_the_way_is_followed_by_them() -> None:
    # The long one takes 10 + 10 + 10 + 10. Others take 6 on every position: at least 6 more each.
    assert bound_of([[10, 6, 6]] * 2, [[10, 6, 6]] * 2) == 40 + 6 + 6


def test_one_that_overtakes_costs_its_shortest_op() -> None:
    # Overtaking on the backward of device 1 costs 2, everything else more.
    assert bound_of([[20, 2]] * 2, [[20, 2]] * 2) == 80 + 2
    assert bound_of([[20, 5]] * 2, [[20, 5], [20, 3]]) == 80 + 3


def test_what_comes_before_fits_into_the_head() -> None:
    # The long one cannot begin its backward on device 1 before 20, which begins at 1 and works 10
    # on its forward. In the other 9 it works 1 + 6 for one of the others; two more cost 6 each.
    # If they could be cut, 9 / 7 of them would fit: 40 + 18 - 6 * 9 / 7 = 50.3.
    forward, backward = [[10, 1, 1, 1]] * 2, [[10, 6, 6, 6]] * 2
    assert bound_of(forward, backward) == 50
    assert bound_of(backward, forward) == 50  # with time running backwards


def test_who_overtakes_during_a_transfer_may_cost_nothing() -> None:
    # Device 1 may work on the short one while the other one is transferred: 10 + 5 + 20 + 5 + 10.
    assert bound_of([[10, 1]] * 2, [[10, 1]] * 2, latency=5) == 50


def test_a_position_without_length_is_passed_over() -> None:
    assert bound_of([[10, 6], [0, 0]], [[10, 6], [10, 6]]) == 30 + 6
    assert bound_of([[0, 3]], [[1, 0]]) == 0


@pytest.mark.parametrize("seed", first(32, range(150)))
def test_no_bound_is_above_the_optimum(seed: int) -> None:
    found = drawn(seed)
    best = brute_force(problem_of(found))
    assert best is None or passing(Paths(found)) <= best


def test_fewer_ends_and_parts_give_lower_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(5)
    sizes = rng.lognormal(0, 1, 8)
    times = [[max(1, round(20 * size)) for size in sizes]] * 4
    backward = [[2 * time for time in row] for row in times]
    paths = Paths(flow(times, backward))
    found = [passing(paths)]
    for ends in (3, 2):
        found.append(passing(paths, params=BoundsParams(chain_ends=ends)))
    monkeypatch.setattr(module, "PARTS", 2)
    found.append(passing(paths, params=BoundsParams(chain_ends=2)))
    assert found == sorted(found, reverse=True)
    assert found[-1] >= int((paths.head + paths.flow.duration + paths.tail).max())
