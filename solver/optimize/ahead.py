"""A process beside that compiles kernels into the cache.

Numba compiles one function at a time in a process, so what a run needs last of the kernels that
take longest is made beside the rest (`FIRST`). A call with too little time to compile anything runs
by Python, takes over what the process has finished, and leaves it to the calls after it: without
that, calls of 20 s would never find a kernel.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.lowering import lower_pipeline
from ppsolve.solver.heuristics.justify import Justifier
from ppsolve.solver.heuristics.order_search import order_search
from ppsolve.solver.heuristics.serial import generate_serial
from ppsolve.solver.kernels.cache import folder, is_complete, is_warm, note_complete
from ppsolve.solver.kernels.compilation import SWITCH, await_kernels, expect, is_time_to_compile
from ppsolve.solver.structure.implied import index_order

FIRST = ("place_by_rank", "justify", "search_orders")
"""The kernels that are made first, in the order in which a run needs them; it waits for them.

Of 47 s of user time in which a V placement of 24 x 72 compiled its kernels alone (on a busy
machine), `search_orders` took 13.6, `walk` 12.7, `justify` 8.2 and `place_by_rank` 6.6: the run is
left with `walk` and 6 s of small ones, and these three take 28 s beside it. While the run made
`search_orders` as well, its share was 32 s.
"""

LEAST_SECONDS = 5.0
"""Seconds that must be left to start the process: it needs 0.9 s to begin, and one to five for each
kernel, which a cache keeps for the next call."""

_MODULE = "ppsolve.solver.optimize.ahead"

_begun: list[subprocess.Popen[bytes]] = []


def announce(steps: float, seconds: float) -> None:
    """Let compiled code be loaded where it pays, and made where it is missing.

    Parameters
    ----------
    steps : float
        Ops placed or edges relaxed that are to come.
    seconds : float
        Seconds that are left for them.
    """
    if expect(steps) and seconds >= LEAST_SECONDS:
        compile_beside()


def compile_beside() -> None:
    """Start a process that compiles all kernels, unless they are known or that is of no use.

    It takes a cache that can be written, a second processor and an interpreter that can be started;
    without one of them this process compiles all by itself. The other process ends with this one.
    """
    if _begun or is_complete() or not _is_possible():
        return
    environment = {**os.environ, SWITCH: "always"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
    except OSError:
        return
    _begun.append(process)
    atexit.register(_end, process)
    if is_time_to_compile() and not all(map(is_warm, FIRST)):
        await_kernels(FIRST, lambda: process.poll() is None)


def _is_possible() -> bool:
    is_python = Path(sys.executable or "").name.startswith("python")
    is_plain = is_python and not getattr(sys, "frozen", False)
    return is_plain and _processors() > 1 and folder() is not None


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def compile_first() -> None:
    """Compile `FIRST` by placing the ops of a small pipeline with a limit of memory."""
    document = _pipeline(2, 2, forward=1, backward_input=1, backward_weight=1)
    problem = lower_pipeline(PipelineInstance.parse(document))
    placed = generate_serial(problem, np.arange(problem.num_ops), index_order(problem))
    order_search(Justifier(problem).improve(placed, 1), steps=1)


def compile_rest() -> None:
    """Compile all other kernels by solving small pipelines in every way."""
    from ppsolve.solver.optimize.api import optimize, simulate
    from ppsolve.solver.pipeline.replicas.step import StepScheduler

    for document, heuristics in _examples():
        instance = PipelineInstance.parse(document)
        for heuristic in heuristics:
            simulate(instance, heuristic)
        if not heuristics:
            optimize(instance, workers=1)
    replicas = {"count": 2, "assignment": "free"}
    document = _pipeline(2, 4, forward=[[3, 2, 4, 3], 2], backward=[3, 4])
    StepScheduler(PipelineInstance.parse({**document, "replicas": replicas}))


def _examples() -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """Yield documents with the heuristics to run on them; none: solve them."""
    unequal = [[3, 2, 4, 3, 7], [2, 3, 5, 1, 2], [4, 4, 1, 6, 2]]
    yield _pipeline(3, 5, forward=[3, 2, 4], backward_input=3, backward_weight=2), ("list-sweep",)
    split = {"forward": unequal, "backward_input": unequal, "backward_weight": unequal}
    yield _pipeline(3, 5, **split), ("permutations", "order-search")
    fused = _pipeline(2, 5, forward=unequal[:2], backward=unequal[1:])
    yield fused, ()
    alike = _pipeline(3, 5, forward=[3, 2, 4], backward_input=[3, 4, 2], backward_weight=2)
    yield {**alike, "memory": {"capacity": 2, "activation": 1}}, ()
    chunks = _pipeline(2, 5, forward=[3, 2, 4, 3], backward_input=3, backward_weight=2)
    turned = {"stages_per_device": 2, "placement": "vshape", "objective": "device_span"}
    yield {**chunks, **turned}, ("list-sweep",)


def _pipeline(devices: int, microbatches: int, **times: Any) -> dict[str, Any]:
    memory = {"capacity": 3, "activation": 1, "released_by_backward_weight": 0.5}
    shape = {"num_devices": devices, "num_microbatches": microbatches}
    return {**shape, "times": times, "memory": memory}


def _end_with_parent() -> None:
    """End this process at once when the one that started it is gone: then its pipe ends."""
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    compile_first()
    compile_rest()
    note_complete()
    os._exit(0)
