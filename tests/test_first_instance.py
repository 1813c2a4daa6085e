"""A plain pipeline passes few files: what an instance does not have is not asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import PurePath

from tests.paths import ROOT

MOST_FILES = 89
"""Source files of which a function runs from the file of an instance to its proved optimum."""

COUNT = """
import sys, threading
import ppsolve

path, names = sys.argv[1], set()
ppsolve.optimize(ppsolve.load_instance(path), workers=1)  # all that is lazy is imported

def note(frame, event, argument):
    if event == "call":
        names.add(frame.f_code.co_filename)

threading.setprofile(note)
sys.setprofile(note)
result = ppsolve.optimize(ppsolve.load_instance(path), workers=1)
sys.setprofile(None)
print(result.status, *names, sep="\\n")
"""

ABSENT = {
    "bubbles.py",
    "claims.py",
    "filling.py",
    "fillers.py",
    "layers.py",
    "modes.py",
    "slices.py",
}
"""Modules of parts that the instance does not have."""


def test_the_first_instance_passes_few_files() -> None:
    instance = ROOT / "instances" / "memory_scan" / "scan-4x8-3.json"
    command = [sys.executable, "-c", COUNT, str(instance)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    status, *names = done.stdout.splitlines()
    passed = [PurePath(name) for name in names if "ppsolve" in PurePath(name).parts]
    files = [path for path in passed if {"solver", "models"} & set(path.parts)]
    assert status == "OPTIMAL"
    assert not ABSENT & {path.name for path in files if "pipeline" in path.parts}
    assert 40 < len(files) <= MOST_FILES
