"""Models and limits of data-parallel jobs for tests, drawn at random."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from ppsolve.models.studies.goodput.params import GradParams, PerfParams
from ppsolve.solver.studies.goodput.model import GoodputModel

PERF = PerfParams(0.0213, 0.00187, 0.116, 0.0071, 0.0132, 0.0009, 2.75)
MODEL = GoodputModel(PERF, GradParams(0.0002, 0.09), 128)

Search = tuple[GoodputModel, tuple[int, int], int, tuple[int, int], bool]
"""Model, (nodes, replicas), largest batch, range of micro-batch sizes, accumulation."""


def amounts(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_nan=False)


@st.composite
def models(draw: st.DrawFn) -> GoodputModel:
    perf = [draw(amounts(1e-6, 10)) for _ in range(6)]
    grad = [draw(st.just(0.0) | amounts(1e-9, 1e6)) for _ in range(2)]
    gamma = draw(amounts(1, 10))
    return GoodputModel(
        PerfParams(*perf, gamma), GradParams(*grad), draw(st.integers(1, 500))
    )


@st.composite
def allocations(draw: st.DrawFn) -> tuple[int, int]:
    nodes = draw(st.integers(1, 20))
    return nodes, draw(st.integers(nodes, 40))


@st.composite
def searches(draw: st.DrawFn) -> Search:
    model = draw(models())
    most = draw(st.integers(int(model.init_batch_size), 3000))
    low = draw(st.integers(1, min(most, 200)))
    high = draw(st.integers(low, 400))
    return model, draw(allocations()), most, (low, high), draw(st.booleans())


def random_search(seed: int) -> Search:
    """Return small limits of a job that is extreme in some way: free parts, no gradient, ..."""
    rng = np.random.default_rng(seed)

    def amount() -> float:
        return 0.0 if rng.random() < 0.25 else float(10 ** rng.uniform(-6, 1))

    perf = [amount() for _ in range(6)]
    perf[1] += 1e-3 * (perf[0] + perf[1] == 0)
    gamma = float(rng.choice([1, 1.5, 2.75, 10]))
    least = int(rng.integers(1, 200)) + 0.5 * (rng.random() < 0.1)
    span = int(rng.choice([1, 3, 100, 1000]))
    model = GoodputModel(
        PerfParams(*perf, gamma), GradParams(amount(), amount()), least
    )
    most = int(np.ceil(least)) + int(rng.integers(0, span))
    low = int(rng.integers(1, min(most, int(rng.choice([1, 20, 200]))) + 1))
    high = low + int(rng.choice([0, 1, 3, 20, 100, 1000]))
    replicas = int(rng.choice([1, 1, 2, 3, 5, 7, 16, 40]))
    nodes = int(rng.integers(1, replicas + 1))
    return model, (nodes, replicas), most, (low, high), bool(rng.random() < 0.75)
