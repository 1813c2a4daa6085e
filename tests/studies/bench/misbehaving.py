"""A package outside this one that declares a kind whose instances do not behave.

It is installed below a folder of a test as other packages are: a module, and an entry point of the
group ``ppsolve.kinds``, so that every process that is started finds it.
"""

from __future__ import annotations

import json
from pathlib import Path

MODULE = '''
"""Instances that lower to one op of length 1, or do something worse."""

import ctypes
import os
import time
from typing import Literal

import numpy as np

from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.builder import OpLabels, ProblemBuilder
from ppsolve.models.core.problem import (Problem)
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.instances import Instance
from ppsolve.solver.kinds.kind import Kind


class Misbehaving(Instance):
    schema_version: Literal[1] = 1
    kind: Literal["misbehaving"] = "misbehaving"
    name: str
    description: str | None = None
    time_unit: str = "s"
    does: str = "fine"
    number: int = 0
    argument: str = ""


def lower(instance, *, exact=False):
    globals()["do_" + instance.does](instance.argument)
    builder = ProblemBuilder(instance.name, TimeScale.fit([], "s", exact=exact))
    machine = np.array([builder.add_resource(DeviceName("machine"))])
    builder.add_ops("J", np.array([1]), machine[:, None], OpLabels(device=0))
    builder.span_resources = machine
    return builder.build()


def do_fine(argument):
    time.sleep(0.01)


def do_abort(argument):
    os.abort()


def do_segfault(argument):
    ctypes.string_at(8)


def do_hang(argument):
    time.sleep(1000)


def do_hang_in_native_code(argument):
    # A PyDLL keeps the lock of the interpreter: no thread of this process can do anything.
    ctypes.PyDLL(None).sleep(1000)


def do_throw(argument):
    raise RuntimeError("nothing works")


def do_throw_memory_error(argument):
    raise MemoryError


def do_eat(argument):
    kept = []
    while True:
        kept.append(np.ones(2**23))
        time.sleep(0.01)


def do_eat_in_a_child(argument):
    import subprocess
    import sys

    code = "import time, numpy; kept = numpy.ones(2**27); time.sleep(1000)"
    subprocess.run([sys.executable, "-c", code])


def do_exit(argument):
    os._exit(7)


def do_kill_itself(argument):
    os.kill(os.getpid(), 9)


def do_kill_helper_once(argument):
    # The helper that processes are forked from; a file says that it was done.
    if not os.path.exists(argument):
        open(argument, "w").close()
        os.kill(os.getppid(), 9)
        time.sleep(1000)


def do_kill_worker_once(argument):
    # The process that started the helper: dask's worker, or a run of this program.
    if not os.path.exists(argument):
        open(argument, "w").close()
        do_kill_worker(argument)


def do_kill_worker(argument):
    with open(f"/proc/{os.getppid()}/stat") as stat:
        os.kill(int(stat.read().rpartition(")")[2].split()[1]), 9)
    time.sleep(1000)


KIND = Kind("misbehaving", Misbehaving, lower)
'''

METADATA = "Metadata-Version: 2.1\nName: misbehaving\nVersion: 1.0\n"


def install(folder: Path) -> None:
    """Put the package below `folder`, which is to be on Python's path."""
    (folder / "misbehaving_kind.py").write_text(MODULE)
    facts = folder / "misbehaving-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(METADATA)
    (facts / "entry_points.txt").write_text(
        "[ppsolve.kinds]\nmisbehaving = misbehaving_kind:KIND\n"
    )


def write(folder: Path, does: list[str], argument: str = "") -> list[Path]:
    """Write an instance for each entry of `does`, numbered, and return their files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, what in enumerate(does):
        path = folder / f"{number}-{what}.json"
        document = {
            "kind": "misbehaving",
            "name": path.stem,
            "does": what,
            "number": number,
        }
        path.write_text(json.dumps({**document, "argument": argument}))
        paths.append(path)
    return paths
