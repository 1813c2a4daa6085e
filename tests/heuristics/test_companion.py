"""A search beside another one: it tells its best and learns."""

from __future__ import annotations

import subprocess
import sys
import time

from ppsolve.models.core.schedule import Schedule
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.companion import Companion, sweeping
from ppsolve.solver.heuristics.sweep import list_sweep
from ppsolve.solver.optimize.kinds import lower

PROBLEM = lower(
    PipelineInstance(
        num_devices=3,
        num_microbatches=6,
        times={
            "forward": [3, 5, 4],
            "backward_input": [4, 3, 5],
            "backward_weight": [2, 4, 3],
        },
        p2p={"latency": 1},
        memory={"capacity": 3, "activation": 1, "released_by_backward_weight": 0.43},
    )
)


def test_it_tells_of_its_best_schedule() -> None:
    best, told = list_sweep(PROBLEM), []
    with Companion("list-sweep", sweeping(PROBLEM, None, 0), Clock(60.0)).at_work() as companion:
        while not told or told[-1].value > best.value:
            found = companion.found()
            if found is not None:
                told.append(found)
            time.sleep(0.01)
    assert all(check_schedule(PROBLEM, schedule) == [] for schedule in told)


def test_it_learns_a_better_schedule() -> None:
    best, told = list_sweep(PROBLEM), []

    def exchange(better: Schedule | None) -> Schedule:
        if better is not None:
            told.append(better.value)
        return best

    worse = Schedule(PROBLEM, best.start * 2)
    clock = Clock(60.0)
    found = list_sweep(PROBLEM, clock, known=worse, bound=best.value, exchange=exchange)
    assert found.value == best.value
    assert not clock.is_over
    assert told == sorted(told, reverse=True)


LINGERS = """
import time
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.companion import Companion

def search(clock, exchange):
    while not clock.is_over:
        time.sleep(0.01)
    time.sleep(0.3)
    print("ended")

with Companion("slow", search, Clock()).at_work():
    pass
"""


def test_a_process_waits_for_a_companion_that_was_told_to_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LINGERS], capture_output=True, text=True, check=True
    )
    assert done.stdout == "ended\n"
