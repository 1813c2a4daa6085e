"""What a plan is worth when it ends early: ``python benchmarks/planning_anytime.py [REQUEST]``.

Of a model of 65 billion parameters on up to 128 devices: how many configurations have a schedule
after 20 s, or are proved worse without one, the answer after 45 s beside that after 300 s, how far
five plans under load are apart, and plans of more and more choices at one limit. Takes about 20
minutes.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shipped import INSTANCES

import ppsolve
from ppsolve.models.studies.plan.request import PlanRequest
from ppsolve.models.studies.plan.result import Plan, Rule

REQUEST = INSTANCES / "plans" / "gpt-80x128.plan.json"
EARLY, USUAL, LONG = 20.0, 45.0, 300.0
"""Limits in seconds."""

RUNS = 5

GROWING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("linear, size 1", {"placements": ("linear",), "microbatch_sizes": (1,)}),
    ("linear", {"placements": ("linear",)}),
    ("linear, interleaved", {"placements": ("linear", "interleaved")}),
    ("all placements", {}),
)
"""Searches of which each allows all that the one before it does."""


def goodput(plan: Plan) -> float:
    """Return the goodput of the winner in samples per second, 0 without one."""
    return 0.0 if plan.goodput is None else plan.goodput.low


def told(name: str, plan: Plan) -> float:
    """Print one line about a plan, and return what it reaches."""
    fitting = [row for row in plan.table if row.lost_by is not Rule.MEMORY]
    scheduled = sum(row.step_time is not None for row in fitting)
    worse = sum(row.step_time is None and row.lost_by is Rule.BOUND for row in fitting)
    print(
        f"{name:<28}{goodput(plan):10.4f} samples/s  {plan.wall_seconds:6.1f} s  "
        f"{scheduled} of {len(fitting)} that may fit are scheduled, {worse} more proved worse, "
        f"{plan.counts.exact_runs} solved"
    )
    return goodput(plan)


@contextmanager
def busy_process() -> Iterator[None]:
    """Keep another process busy meanwhile."""
    process = multiprocessing.Process(target=_spin, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _spin() -> None:
    while True:
        pass


def main() -> None:
    """Print one line per plan, and what they show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("request", nargs="?", type=Path, default=REQUEST)
    parser.add_argument("--runs", type=int, default=RUNS, help="plans under load")
    options = parser.parse_args()
    request = ppsolve.load_request(options.request)
    told("after 20 s", ppsolve.plan(request, time_limit=EARLY))
    usual = told("after 45 s", ppsolve.plan(request, time_limit=USUAL))
    long = told("after 300 s", ppsolve.plan(request, time_limit=LONG))
    print(f"-> 45 s is {1 - usual / long:.2%} below 300 s")
    with busy_process():
        runs = [
            told(f"under load, run {run}", ppsolve.plan(request, time_limit=USUAL))
            for run in range(1, options.runs + 1)
        ]
    print(f"-> runs under load are {1 - min(runs) / max(runs):.2%} apart")
    grown = [
        told(name, ppsolve.plan(searching(request, **lists), time_limit=USUAL))
        for name, lists in GROWING
    ]
    print(f"-> more choices are never worse: {grown == sorted(grown)}")


def searching(request: PlanRequest, **lists: Any) -> PlanRequest:
    """Return the request with other lists in its search."""
    return request.model_copy(
        update={"search": request.search.model_copy(update=lists)}
    )


if __name__ == "__main__":
    main()
