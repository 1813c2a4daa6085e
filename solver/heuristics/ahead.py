"""Kernels that a process beside compiles into the cache while this one compiles others.

Numba compiles one function at a time in a process. Of 29 s of CPU time (beside other processes) in
which all kernels of a run were compiled, `walk` took 12, `justify` 6.5 and `place_by_rank` 5: a run
needs the two last, so they are made beside the rest.
"""

from __future__ import annotations

import atexit
import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.lowering import lower_pipeline
from ppsolve.solver.heuristics.justify import Justifier
from ppsolve.solver.heuristics.serial import generate_serial
from ppsolve.solver.kernels.cache import folder, is_warm
from ppsolve.solver.kernels.compilation import SWITCH, await_kernels, expect, is_compiled
from ppsolve.solver.structure.implied import index_order

NAMES = ("place_by_rank", "justify")
"""The kernels that are made beside, in the order in which a run needs them."""

_begun: list[subprocess.Popen[bytes]] = []


def compile_beside() -> None:
    """Start a process that compiles `NAMES`, unless they are known or that is of no use.

    It takes a cache that can be written, a second processor and an interpreter that can be started;
    without one of them this process compiles all by itself. The other process ends with this one.
    """
    if _begun or not is_compiled() or not _is_possible() or all(map(is_warm, NAMES)):
        return
    environment = {name: value for name, value in os.environ.items() if name != SWITCH}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
    except OSError:
        return
    _begun.append(process)
    atexit.register(_end, process)
    await_kernels(NAMES, lambda: process.poll() is None)


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


def compile_here() -> None:
    """Compile `NAMES` by placing the ops of a small pipeline with a limit of memory."""
    times = {"forward": 1, "backward_input": 1, "backward_weight": 1}
    memory = {"capacity": 2, "activation": 1, "released_by_backward_weight": 0.5}
    document = {"num_devices": 2, "num_microbatches": 2, "times": times, "memory": memory}
    problem = lower_pipeline(PipelineInstance.parse(document))
    justifier = Justifier(problem)  # by kernels that the other process compiles: not here
    expect(math.inf)
    placed = generate_serial(problem, np.arange(problem.num_ops), index_order(problem))
    justifier.improve(placed, 1)


def _end_with_parent() -> None:
    """End this process at once when the one that started it is gone: then its pipe ends."""
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    compile_here()
    os._exit(0)
