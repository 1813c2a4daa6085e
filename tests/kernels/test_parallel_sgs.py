"""List scheduling gives the same starts compiled or not."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from ppsolve.models.documents.errors import DeadlockError, MemoryDeadlockError
from ppsolve.solver.api.kinds import load_instance, lower
from ppsolve.solver.heuristics.list_scheduling import generate_parallel
from ppsolve.solver.heuristics.rules import RuleBook
from ppsolve.solver.kernels import compilation
from ppsolve.solver.structure.implied import index_order
from tests.paths import ROOT

NAMES = (
    "published/zb-1.5b-8x24-1p.json",
    "virtual_stages/v-4x8-cap6.json",
    "p2p_heavy/link-uneven-4x12.json",
)


@pytest.mark.parametrize("name", NAMES)
def test_compiled_and_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = lower(load_instance(ROOT / "instances" / name))
    edges = index_order(problem)
    book = RuleBook(problem)
    for rule, extra in map(book.rule, islice(book.recipes(), 6)):
        found = []
        for compiled in (False, True):
            monkeypatch.setitem(compilation._state, "compiled", compiled)
            try:
                found.append(generate_parallel(problem, rule, edges, extra).start)
            except (DeadlockError, MemoryDeadlockError) as error:
                found.append(np.array([str(error)]))
        np.testing.assert_array_equal(*found)
