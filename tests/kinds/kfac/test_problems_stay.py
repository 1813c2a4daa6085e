"""Problems of K-FAC work stay what they were: each has a digest in `tests/data/kfac_problems.json`.

``PPSOLVE_KEEP_DIGESTS=1`` writes the file anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from ppsolve.models.core.problem import Problem
from ppsolve.models.documents.files import read_json
from ppsolve.models.kinds.kfac.cycle import lower_cycle
from ppsolve.models.kinds.kfac.instance import FREE_PIPELINE, KfacInstance
from ppsolve.models.kinds.kfac.unrolling import lower_refresh
from ppsolve.solver.kinds.kfac.kind import is_refresh
from ppsolve.solver.kinds.kfac.pattern import pattern_of
from ppsolve.solver.kinds.kfac.pinned import pinned_cycle
from tests.kinds.kfac.cases import NAMES, measured
from tests.kinds.kfac.described_instances import FUSED, SPLIT, described_instance
from tests.paths import DATA, ROOT
from tests.problem_text import digest

FILE = DATA / "kfac_problems.json"

MODULES = [
    {
        "stage": stage,
        "name": name,
        "curvature_a": 1,
        "curvature_b": 0.5,
        "sync_a": sync,
        "inverse_a": 2,
        "inverse_b": 3,
        "precondition": 0.25,
        "replicas": replicas,
        "input_bytes": 0.5 * sync,
        "error_bytes": 1,
    }
    for stage, name, sync, replicas in [
        (0, "a", 0, None),
        (0, "b", 1, [1]),
        (2, "a", 2, [0, 3]),
    ]
]
MEMORY = {
    "capacity": 40,
    "activation": 1,
    "static": 1,
    "released_by_backward_weight": 0.5,
}
NIC = {"mode": "nic", "bytes": 1, "bandwidth": 1}
PIPELINES: dict[str, dict[str, Any]] = {
    "fused": {"times": FUSED},
    "split": {"times": SPLIT, "memory": MEMORY},
    "delays": {"allreduce": 1, "optimizer": 1, "p2p": NIC},
    "two-pipes": {"placement": "bidirectional", "allreduce": 1, "optimizer": 1},
    "two-pipes-alone": {"placement": "bidirectional", "memory": MEMORY},
}


def described() -> Iterator[tuple[str, KfacInstance]]:
    for name, pipeline in PIPELINES.items():
        for length in (1, 3):
            made = described_instance(
                {}, 4, 4, MODULES, pipeline, refresh_interval=length, max_age=length - 1
            )
            yield f"{name} {length}", made


def problems() -> Iterator[tuple[str, Problem]]:
    for path in sorted((ROOT / "instances" / "kfac").rglob("*.json")):
        instance = KfacInstance.parse(read_json(path), path.name)
        if is_refresh(instance):
            pattern = pattern_of(instance)
            counts = [2 + device % 2 for device in range(len(pattern.devices))]
            yield (
                path.stem,
                lower_refresh(pattern, counts, weight_of=lambda _: 1).problem,
            )
        elif instance.pattern == FREE_PIPELINE:
            yield path.stem, lower_cycle(instance)
    for name in NAMES:
        pattern = measured(name)
        yield name, lower_refresh(pattern, [2] * len(pattern.devices)).problem
    for name, instance in described():
        yield name, lower_cycle(instance)
        published = "chimera" if name.startswith("two-pipes") else "gpipe"
        yield f"{name} pinned", pinned_cycle(instance, published)


def digests() -> dict[str, str]:
    return {name: digest(problem) for name, problem in problems()}


def test_every_problem_is_what_it_was() -> None:
    found = digests()
    if os.environ.get("PPSOLVE_KEEP_DIGESTS"):
        FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    assert found == json.loads(FILE.read_text(encoding="utf-8"))
    assert len(set(found.values())) == len(found)
