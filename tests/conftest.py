"""Settings of all tests: none of them judges how fast the machine is."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")


def pytest_configure() -> None:
    """Keep each test process on a core of its own: searches then use one thread, not all."""
    if WORKER and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(WORKER.removeprefix("gw")) % len(cores)]})
