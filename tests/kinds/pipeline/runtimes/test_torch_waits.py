"""Where PyTorch's ranks wait, held to its own runtime in virtual time."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import ppsolve
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.kinds.pipeline.programs.communications import with_communications
from ppsolve.solver.kinds.pipeline.programs.waited import Programs
from ppsolve.solver.kinds.pipeline.programs.waits import (
    Network,
    ProgramRun,
    run_programs,
)
from ppsolve.solver.kinds.pipeline.runtimes.torch_waits import (
    as_torch_waits,
    torch_programs,
)
from tests.kinds.pipeline.runtimes.cases import LOOPED, pipeline
from tests.kinds.pipeline.runtimes.waiting import judged, ops_of

RULES = ("list-tail", "list-backward-first", "list-work")
WHERE = ({}, LOOPED, {"placement": "vshape", "stages_per_device": 2})
NAMES = (("forward", "backward"), ("forward", "backward_input", "backward_weight"))


def drawn_rows(rng: random.Random) -> dict[str, Any]:
    """Return the actions of a random pipeline in a random list order, both forms."""
    where, kinds = rng.choice(WHERE), rng.choice([("F", "B"), ("F", "I", "W")])
    ranks = rng.randint(2, 4)
    stages, count = ranks * (2 if where else 1), rng.randint(1, 8)
    names = NAMES[len(kinds) - 2]
    times = {name: [rng.randint(1, 20) for _ in range(stages)] for name in names}
    p2p = {"latency": rng.randint(0, 9)}
    instance = pipeline(ranks, count, times=times, p2p=p2p, **where)
    entry = ppsolve.simulate(instance, rng.choice(RULES))
    program = read_program(json.loads(entry.model_dump_json()), instance)
    return {
        "ranks": list(instance.stage_to_device),
        "m": count,
        "times": dict(zip(kinds, times.values(), strict=True)),
        "compute_only": program.rows,
        "compute_comms": with_communications(program.rows, program.ends),
    }


def cases_of(seeds: Sequence[int]) -> Iterator[tuple[dict[str, Any], Programs]]:
    """Yield a case of the judge and our programs, for each form, kind of send and latency."""
    for seed in seeds:
        drawn = drawn_rows(random.Random(seed))
        for form in ("compute_only", "compute_comms"):
            rows = drawn[form]
            programs = torch_programs(rows)
            if form == "compute_comms":
                programs = [as_torch_waits(row) for row in rows]
            texts = [[str(step) for step in row] for row in rows]
            shape = {name: drawn[name] for name in ("ranks", "m", "times")}
            for rendezvous in (False, True):
                for latency in (0, 3):
                    wire = {"rendezvous": rendezvous, "latency": latency}
                    yield {**shape, **wire, "form": form, "rows": texts}, programs


def run_of(case: dict[str, Any], programs: Programs) -> ProgramRun:
    latency = int(case["latency"])
    network = Network(case["ranks"], lambda *_: latency, case["rendezvous"])
    times = case["times"]
    return run_programs(
        programs, lambda action: int(times[action.kind][action.stage]), network
    )


@pytest.mark.runtimes
def test_every_op_as_the_real_runtime_has_it() -> None:
    pytest.importorskip("torch")
    pairs = list(cases_of(range(50)))
    runs = judged(
        Path(__file__).with_name("real_torch.py"), [case for case, _ in pairs]
    )
    for (case, programs), ops in zip(pairs, runs, strict=True):
        assert ops_of(run_of(case, programs)) == set(map(tuple, ops)), case
