"""Zero-bubble orders: what each holds in flight, counted along the order itself."""

from __future__ import annotations

import pytest

from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.kinds.pipeline.actions import Order
from ppsolve.solver.kinds.pipeline.one_stage import zb_1p, zb_handmade
from tests.running import run_heuristic

SIZES = [(1, 1), (1, 4), (2, 5), (4, 3), (4, 4), (4, 6), (4, 12), (8, 24)]


def peak(order: Order, released_by: str) -> int:
    """Return the most activations that the order holds, one a forward until `released_by`."""
    held = most = 0
    for action in order:
        kinds = str(action)
        held += ("F" in kinds) - (released_by in kinds)
        most = max(most, held)
    return most


@pytest.mark.parametrize(("devices", "microbatches"), SIZES)
def test_peaks_are_those_of_the_names(devices: int, microbatches: int) -> None:
    orders = {
        1: zb_1p(devices, microbatches),
        2: zb_handmade(devices, microbatches, 1),
        3: zb_handmade(devices, microbatches, 2),
    }
    most = {1: devices, 2: devices, 3: 2 * devices - 1}
    for number, found in orders.items():
        expected = [min(most[number], microbatches)] * devices
        assert [peak(order, "W") for order in found] == expected


@pytest.mark.parametrize(("devices", "microbatches"), SIZES)
def test_input_gradients_come_back_as_in_1f1b(devices: int, microbatches: int) -> None:
    # Where I gives everything back, stage s holds the p - s activations of 1F1B.
    expected = [min(devices - stage, microbatches) for stage in range(devices)]
    assert [peak(order, "I") for order in zb_1p(devices, microbatches)] == expected


@pytest.mark.parametrize("name", ["zb-1p", "zb-h1"])
@pytest.mark.parametrize(("capacity", "fits"), [(4, True), (3.9, False)])
def test_memory_of_1f1b_is_enough_and_needed(
    name: str, capacity: float, fits: bool
) -> None:
    instance = PipelineInstance(
        num_devices=4,
        num_microbatches=12,
        times={"forward": 1, "backward_input": 1, "backward_weight": 1},
        memory={"capacity": capacity, "activation": 1},
    )
    outcome = run_heuristic(name, instance, lower(instance))
    expected = HeuristicStatus.FEASIBLE if fits else HeuristicStatus.INFEASIBLE
    assert outcome.status is expected


def test_order_of_1p_by_hand() -> None:
    # p = 4, m = 6: from its fourth forward on, device 0 gives one weight gradient back per turn.
    assert [" ".join(str(action)[1:] for action in order) for order in zb_1p(4, 6)] == [
        "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 I3 W3 I4 W4 I5 W5",
        "F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 I4 W3 I5 W4 W5",
        "F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 I5 W3 W4 W5",
        "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 W3 W4 W5",
    ]
