"""Settings of all tests: none of them judges how fast the machine is."""

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from ppsolve.solver.kernels import compilation
from tests import marks

# 6 examples in place of hypothesis' 100, so that the default run ends within three minutes; each
# run draws others.
settings.register_profile(
    "any-machine",
    deadline=None,
    max_examples=6 * marks.MORE,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any-machine")

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")


def pytest_configure(config: pytest.Config) -> None:
    """Keep each test process on a core of its own: searches then use one thread, not all.

    Garbage is not looked for before tests are collected: of twenty thousand there is none.
    """
    marks.expression = config.option.markexpr
    gc.disable()
    if WORKER and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(WORKER.removeprefix("gw")) % len(cores)]})


def pytest_collection_finish() -> None:
    """Look for garbage among what tests make, seldom, and no more among the tests."""
    gc.freeze()
    gc.set_threshold(100_000)
    gc.enable()


@pytest.fixture(autouse=True)
def kernels_as_before() -> Iterator[None]:
    """Let no test run compiled because a test before it in the same process did."""
    before = dict(compilation._state)
    yield
    compilation._state.update(before)
