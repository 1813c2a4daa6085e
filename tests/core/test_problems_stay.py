"""Problems of shipped instances stay what they were, names and numbers of ops included.

Each has a digest in `tests/data/problems.json`; ``PPSOLVE_KEEP_DIGESTS=1`` writes the file anew.
Small pipelines below have every part whose ops are named in a way of their own.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from shipped import INSTANCES, instance_files

from ppsolve import parse_instance
from ppsolve.models.core.problem import Problem
from ppsolve.models.documents.files import read_json
from ppsolve.solver.api.kinds import kind_of
from tests.paths import DATA
from tests.problem_text import digest

FILE = DATA / "problems.json"
LARGE = 300
"""Ops above which the text of a problem takes over a tenth of a second."""

BASE = {
    "kind": "pipeline",
    "num_devices": 2,
    "num_microbatches": 4,
    "times": {"forward": 1, "backward": 2},
}
SPLIT = {"times": {"forward": 1, "backward_input": 2, "backward_weight": 1}}
TAIL = {"allreduce": 1, "optimizer": 1}
NIC = {"p2p": {"mode": "nic", "bytes": 1, "bandwidth": 1}}
PIECES = {
    "collectives": {"forward": {"segments": 2, "allreduce": 1}, "reduce_scatter": 1}
}
FILLERS = [
    {"name": "a", "device": 0, "pieces": [1, 2], "per_step": True, "after": "F0.1"},
    {"name": "b", "device": 0, "devices": [1], "pieces": [1], "per_step": True},
    {"name": "c", "device": 1, "pieces": [1], "stream": "comm", "after": "a"},
]
MEMORY = {"capacity": 4, "activation": 1}
FULL = {"modes": [{"name": "full", "time": 1, "held": 0}], "decide": ["full", "full"]}
COPIES = {"amount": 1, "out": 1, "back": 1, "duplex": True, "host_capacity": 8}
OFFLOAD = {**COPIES, "decide": ["offload", "offload"]}
PIPELINES: dict[str, dict[str, Any]] = {
    "link": {"p2p": {"mode": "link", "bytes": 1, "bandwidth": 1, "latency": 1}},
    "nic": NIC,
    "send queue": {"p2p": {**NIC["p2p"], "mode": "send_queue"}},
    "pieces": PIECES,
    "pieces and steps": {**PIECES, "optimizer": 1, "steps": 2},
    "fillers and steps": {**TAIL, "steps": 3, "fillers": FILLERS},
    "two pipes": {**SPLIT, **TAIL, "placement": "bidirectional"},
    "two pipes and steps": {**TAIL, "placement": "bidirectional", "steps": 2},
    "slices": {**SPLIT, "slices": 2, "memory": {"capacity": 8, "activation": 1}},
    "recompute": {"memory": {**MEMORY, "recompute": FULL}},
    "offload": {"memory": {**MEMORY, "offload": OFFLOAD}},
    "shared links": {"memory": {**MEMORY, "offload": {**OFFLOAD, "links": [[0, 1]]}}},
    "replicas": {**TAIL, **NIC, "replicas": {"count": 2}, "memory": MEMORY},
}


def lowered(data: dict[str, Any]) -> Problem:
    instance = parse_instance(data)
    problem = kind_of(instance).lower(instance)
    assert len(set(problem.resource_names)) == problem.num_resources
    return problem


def keep(digests: dict[str, str]) -> dict[str, str]:
    """Return the digests that are kept, after they are written anew where that is asked for."""
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if os.environ.get("PPSOLVE_KEEP_DIGESTS"):
        kept |= digests
        FILE.write_text(
            json.dumps(dict(sorted(kept.items())), indent=1) + "\n", encoding="utf-8"
        )
    return {name: kept[name] for name in digests}


def shipped(*, large: bool) -> dict[str, str]:
    digests = {}
    for name in instance_files(Path(INSTANCES)):
        problem = lowered(read_json(INSTANCES / name))
        if (problem.num_ops > LARGE) == large:
            digests[name] = digest(problem)
    return digests


def test_every_small_shipped_instance_lowers_to_the_problem_that_it_was() -> None:
    found = shipped(large=False)
    assert found == keep(found)


@pytest.mark.slow
def test_every_large_shipped_instance_lowers_to_the_problem_that_it_was() -> None:
    found = shipped(large=True)
    assert found == keep(found)


def test_every_part_keeps_the_names_of_its_ops() -> None:
    found = {
        name: digest(lowered({**BASE, **parts})) for name, parts in PIPELINES.items()
    }
    assert found == keep(found)
    assert len(set(found.values())) == len(found)
