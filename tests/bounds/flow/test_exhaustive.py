"""Branch and bound over permutations under a pattern, held against all of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds.flow.evaluator import Evaluator, best_under
from ppsolve.solver.bounds.flow.flow import flow_of
from ppsolve.solver.bounds.flow.patterns import Pattern
from ppsolve.solver.kernels.records import NEVER
from tests.bounds.flow.drawn import every_outcome

SPLIT = {
    "forward": [[1, 2, 3, 9, 2], 4],
    "backward_input": [[5, 1, 4, 1, 1], [6, 7, 8, 2, 7]],
    "backward_weight": [[2, 7, 1, 8, 7], [2, 8, 1, 8, 8]],
}
AMOUNTS = [[1, 3, 2, 1, 3], [1, 2, 1, 1, 2]]


def _patterns(**changes):
    fields = {"num_devices": 2, "num_microbatches": 5, "times": SPLIT} | changes
    instance = PipelineInstance(**fields)
    problem = lower(instance)
    flow = flow_of(problem)
    evaluator = Evaluator(flow)
    for outcome in every_outcome(instance, problem):
        if outcome.schedule is not None and outcome.name != "permutations":
            yield evaluator, Pattern.of(flow, outcome.schedule)[0]


def _values(evaluator, pattern):
    return evaluator.values(pattern, np.array(list(itertools.permutations(range(5)))))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"memory": {"capacity": [4, 4], "activation": AMOUNTS}},
        {"p2p": {"mode": "link", "bytes": 3, "bandwidth": 1}},
    ],
)
def test_no_permutation_is_better(changes):
    values = set()
    for evaluator, pattern in _patterns(**changes):
        found, is_complete = best_under(evaluator, pattern)
        least = int(_values(evaluator, pattern).min())
        assert is_complete
        assert (NEVER if found is None else found.value) == least
        if found is not None:
            assert evaluator.timed(pattern, found.permutation).value == least
        values.add(least)
    assert len(values) > 1


def test_nothing_is_sought_beyond_a_limit():
    evaluator, pattern = next(iter(_patterns()))
    least = int(_values(evaluator, pattern).min())
    assert best_under(evaluator, pattern, limit=least)[0].value == least
    assert best_under(evaluator, pattern, limit=least - 1) == (None, True)


def test_a_search_that_is_broken_off_says_so():
    evaluator, pattern = next(iter(_patterns()))
    found, is_complete = best_under(evaluator, pattern, visits=5)
    assert not is_complete
    assert found is not None  # five slots are filled
    assert best_under(evaluator, pattern, visits=4) == (None, False)


def test_micro_batches_that_are_alike_keep_their_order():
    times = {"forward": [[1, 2, 1, 2, 1], 3], "backward": 2}
    for evaluator, pattern in _patterns(times=times):
        found, is_complete = best_under(evaluator, pattern, visits=5 * 10)
        assert is_complete  # 10 orders of two and three, not 120
        assert found.value == _values(evaluator, pattern).min()
