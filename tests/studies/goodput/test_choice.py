"""The best configurations of pipelines, within limits and for every allocation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.studies.goodput.curve import ScheduleCurve
from ppsolve.solver.studies.goodput.pipeline import PipelineGoodput
from ppsolve.solver.studies.goodput.step import Interval
from ppsolve.solver.studies.plan.curve import measure_curve
from tests.marks import examples
from tests.studies.goodput.curve_cases import numbers_of
from tests.studies.goodput.pipeline_cases import SIZES, measured, model, pipeline


@pytest.fixture(scope="module")
def curves() -> dict[int, ScheduleCurve]:
    return measured()


class TestBest:
    def exhaustive(
        self,
        pipelines: PipelineGoodput,
        nodes: int,
        replicas: int,
        largest: int,
        numbers: Any,
    ) -> tuple[float, int, int]:
        best = (0.0, 0, 0)
        for size in pipelines.curves:
            for number in numbers:
                batch = replicas * size * number
                if pipelines.model.init_batch_size <= batch <= largest:
                    value = pipelines.evaluate(
                        nodes, replicas, size, number
                    ).goodput.low
                    if value > best[0]:
                        best = (value, size, number)
        return best

    @pytest.mark.parametrize("largest", [16, 37, 300])
    def test_is_the_best_of_all(
        self, curves: dict[int, ScheduleCurve], largest: int
    ) -> None:
        pipelines = PipelineGoodput(model(), curves)
        for nodes, replicas in ((1, 1), (1, 3), (2, 5), (3, 17), (4, 40)):
            chosen = pipelines.optimize(nodes, replicas, max_batch_size=largest)
            found = (chosen.goodput.low, chosen.atomic_bsz, chosen.microbatches)
            # Up to 64 every number is tried.
            expected = self.exhaustive(
                pipelines, nodes, replicas, largest, range(1, 65)
            )
            assert found[0] >= expected[0] * (1 - 1e-12)
            if found[2] <= 64:
                assert found == pytest.approx(expected, rel=1e-12)

    @examples(9)
    @given(st.integers(1, 60), st.integers(1, 60), st.integers(16, 3000), st.booleans())
    def test_limits_are_kept(
        self, curves: dict[int, ScheduleCurve], a: int, b: int, largest: int, some: bool
    ) -> None:
        pipelines = PipelineGoodput(model(), curves)
        nodes, replicas = min(a, b), max(a, b)
        numbers = [3, 8, 21] if some else None
        chosen = pipelines.optimize(
            nodes, replicas, max_batch_size=largest, microbatches=numbers
        )
        every = range(1, largest + 1) if numbers is None else numbers
        batches = [replicas * size * number for size in SIZES for number in every]
        if not any(16 <= batch <= largest for batch in batches):
            assert chosen.goodput == Interval(0, 0)
            assert (chosen.atomic_bsz, chosen.microbatches, chosen.batch_size) == (
                0,
                0,
                0,
            )
            return
        assert 16 <= chosen.batch_size <= largest
        assert chosen.batch_size == replicas * chosen.atomic_bsz * chosen.microbatches
        assert numbers is None or chosen.microbatches in numbers
        again = pipelines.evaluate(
            nodes, replicas, chosen.atomic_bsz, chosen.microbatches
        )
        assert chosen.goodput.low == pytest.approx(again.goodput.low, rel=1e-12)
        assert chosen.goodput.high == pytest.approx(again.goodput.high, rel=1e-12)
        assert chosen.extrapolated == again.extrapolated

    def test_arrays_are_the_answers_of_their_entries(
        self, curves: dict[int, ScheduleCurve]
    ) -> None:
        pipelines = PipelineGoodput(model(), curves)
        nodes, replicas = [[1], [2]], [2, 3, 8, 30]
        found = pipelines.optimize(nodes, replicas, max_batch_size=100)
        assert found.goodput.low.shape == (2, 4)
        for i, (n,) in enumerate(nodes):
            for j, k in enumerate(replicas):
                one = pipelines.optimize(n, k, max_batch_size=100)
                assert found.goodput.low[i, j] == one.goodput.low
                assert found.goodput.high[i, j] == one.goodput.high
                assert found.atomic_bsz[i, j] == one.atomic_bsz
                assert found.microbatches[i, j] == one.microbatches
                assert found.extrapolated[i, j] == one.extrapolated

    def test_thousands_of_pairs(self, curves: dict[int, ScheduleCurve]) -> None:
        pipelines = PipelineGoodput(model(), curves)
        found = pipelines.optimize(
            [[1], [50]], np.arange(50, 5001), max_batch_size=100_000
        )
        assert np.all(found.goodput.low > 0)
        assert np.all(found.goodput.low <= found.goodput.high)
        # More nodes only make the sync longer.
        assert np.all(found.goodput.low[0] >= found.goodput.low[1])

    def test_sync_in_schedules_is_for_the_replicas_that_it_was_timed_for(self) -> None:
        few, many = (
            measure_curve(
                pipeline(allreduce=replicas),
                [4, 8],
                heuristics=["1f1b"],
                replicas=replicas,
            )
            for replicas in (2, 8)
        )
        pipelines = PipelineGoodput(model(), {2: few, 4: many})
        assert pipelines.optimize(
            1, [2, 8], max_batch_size=256
        ).atomic_bsz.tolist() == [2, 4]
        assert pipelines.evaluate(1, [2, 8], [2, 4], 8).step_time.high.shape == (2,)
        timed = "expected 2 or 8, which the sync in the schedules was timed for, got 4"
        with pytest.raises(InputError, match=rf"num_replicas\[1\]: {timed}"):
            pipelines.optimize(1, [2, 4], max_batch_size=256)
        timed = "expected 8, which the sync in the schedules was timed for, got 2"
        with pytest.raises(InputError, match=rf"num_replicas: {timed}"):
            pipelines.step_time(1, 2, 4, 8)

    def test_even_numbers_of_bidirectional_pipes(self) -> None:
        instance = pipeline(placement="bidirectional", p2p={"latency": 1})
        curve = measure_curve(instance, numbers_of(instance), heuristics=["chimera"])
        pipelines = PipelineGoodput(model(), {1: curve})
        chosen = pipelines.optimize(1, [1, 3], max_batch_size=20)
        assert np.all(chosen.microbatches % 2 == 0)
        assert chosen.batch_size.tolist() in [[16, 18], [18, 18], [20, 18]]
        odd = pipelines.optimize(1, 1, max_batch_size=20, microbatches=[17, 19])
        assert odd.microbatches == 0

    def test_bad_limits_at_the_edge_of_doubles(
        self, curves: dict[int, ScheduleCurve]
    ) -> None:
        chosen = PipelineGoodput(model(), curves).optimize(
            1, 10**15, max_batch_size=10**15
        )
        assert (chosen.atomic_bsz, chosen.microbatches) == (1, 1)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                {"max_batch_size": 15},
                "max_batch_size: expected at least the initial batch size 16",
            ),
            ({"max_batch_size": [99]}, "max_batch_size: expected one number, got 1"),
            (
                {"microbatches": [0]},
                r"microbatches\[0\]: expected a whole number >= 1, got 0",
            ),
            (
                {"num_nodes": 9},
                r"num_nodes\[0\]: expected at most as many nodes as replicas, got 9",
            ),
            (
                {"num_nodes": [1, 1, 1]},
                "num_nodes, num_replicas: expected shapes that broadcast",
            ),
        ],
    )
    def test_bad_limits(
        self, curves: dict[int, ScheduleCurve], arguments: Any, message: str
    ) -> None:
        plain = {"num_nodes": 1, "num_replicas": [2, 4], "max_batch_size": 99}
        with pytest.raises(InputError, match=message):
            PipelineGoodput(model(), curves).optimize(**{**plain, **arguments})
