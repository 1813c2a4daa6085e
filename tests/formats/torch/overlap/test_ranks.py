"""Two ranks that compile the same step, or not: one order, equal results, no hang."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any

import pytest

from tests.formats.torch.overlap.graphs import STEPS, arguments, inductor, see, trained
from tests.formats.torch.world import World

pytestmark = pytest.mark.torch


def compile_and_run(rank: int, group: Any, name: str) -> tuple[list[list[str]], float]:
    """Return the order before and after the pass, and the largest difference from eager."""
    import torch

    from ppsolve.solver.formats.torch.overlap.ordering import OverlapPass

    warnings.simplefilter("ignore")
    orders: list[list[str]] = []

    class Watched(OverlapPass):
        def __call__(self, nodes: Sequence[Any]) -> list[Any]:
            found = super().__call__(nodes)
            orders.extend([node.get_name() for node in each] for each in (nodes, found))
            return found

    def step(*each: Any) -> Any:
        return STEPS[name](group, *each)

    given = arguments(name, 2, seed=rank)
    expected = step(*given)
    with inductor([Watched(group=group)]):
        found = torch.compile(step, fullgraph=True)(*given)
    pairs = zip(found, expected, strict=True)
    return orders, max(float(((a - b).norm() / b.norm()).item()) for a, b in pairs)


@pytest.mark.parametrize("name", STEPS)
def test_ranks_run_one_order_and_compute_the_same(world: World, name: str) -> None:
    (one, error), (other, other_error) = world.run(compile_and_run, 2, name=name)
    assert one == other
    # The order of two micro-batches is the best one as it is.
    assert (one[0] == one[1]) is (name == "two micro-batches")
    assert max(error, other_error) < 1e-5


def train(rank: int, group: Any) -> tuple[list[list[str]], list[float]]:
    """Return the orders of the graphs of a training step, and how far gradients are from eager."""
    import torch

    from ppsolve.solver.formats.torch.overlap.ordering import OverlapPass

    warnings.simplefilter("ignore")
    orders: list[list[str]] = []

    class Watched(OverlapPass):
        def __call__(self, nodes: Sequence[Any]) -> list[Any]:
            found = super().__call__(nodes)
            orders.append([node.get_name() for node in found])
            return found

    def gradients(step: Any) -> list[Any]:
        given = [each.requires_grad_() for each in arguments("trained", 2, seed=rank)]
        torch.autograd.backward(step(*given), torch.ones(16, 32))
        return [each.grad for each in given]

    def step(*each: Any) -> Any:
        return trained(group, *each)

    expected = gradients(step)
    with inductor([Watched(group=group)]):
        found = gradients(torch.compile(step, fullgraph=True))
    pairs = zip(found, expected, strict=True)
    return orders, [float(((a - b).norm() / b.norm()).item()) for a, b in pairs]


def test_gradients_of_a_compiled_training_step_are_those_of_eager(world: World) -> None:
    (one, errors), (other, other_errors) = world.run(train, 2)
    assert one == other
    assert len(one) == 2
    assert max(*errors, *other_errors) < 1e-5


def compile_something(rank: int, group: Any, differ: bool) -> tuple[bool, list[str]]:
    """Return whether the rank kept its order, and what it logged; ranks may have other layers."""
    from ppsolve.solver.formats.torch.overlap.ordering import OverlapPass

    warnings.simplefilter("ignore")
    told: list[str] = []
    kept: list[bool] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    log, listener = logging.getLogger("ppsolve.torch"), Listener()
    log.addHandler(listener)

    def look(nodes: Sequence[Any]) -> None:
        kept.append(OverlapPass(group=group)(nodes) == list(nodes))

    try:
        see("sharded step", group, 2, look, layers=3 - rank if differ else 3)
    finally:
        log.removeHandler(listener)
    return kept[0], told


def test_ranks_with_different_graphs_keep_their_orders(world: World) -> None:
    for kept, told in world.run(compile_something, 2, differ=True):
        assert kept
        assert len(told) == 1
        assert "ranks compile different graphs" in told[0]
    assert not any(kept for kept, _ in world.run(compile_something, 2, differ=False))
