"""Where Megatron-LM's ranks wait, held to its own schedulers in virtual time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kinds.pipeline.runtimes.cases import solved
from tests.kinds.pipeline.runtimes.waiting import (
    alike,
    drawn_cases,
    has_settings,
    instance_of,
    judged,
    ops_of,
    simulated,
)
from tests.paths import DATA

CASES = json.loads((DATA / "megatron_waits.json").read_text())["cases"]

SMALL: dict[str, Any] = {
    **{"p": 2, "v": 2, "m": 4, "F": [1, 2, 3, 1], "B": [1, 4, 4, 1]},
    **{"group": 4, "combined": False, "latency": 0, "rendezvous": False},
}


def test_makespans_of_the_real_schedulers() -> None:
    for case in CASES:
        assert simulated(case).makespan == case["makespan"], case


class TestGroupsOfFour:
    """The first rank waits for each input of its second chunk before it runs ops of the first."""

    def test_the_default_waits_in_the_warm_up(self) -> None:
        run = simulated({**SMALL, "overlap": "steady"})
        assert run.makespan == 48

    def test_the_flag_makes_it_as_short_as_its_order(self) -> None:
        run = simulated({**SMALL, "overlap": "all"})
        assert run.makespan == 39

    def test_a_rank_posts_one_receive_ahead(self) -> None:
        """So a send that waits for its receive waits for the op behind which that is posted."""
        run = simulated({**SMALL, "overlap": "all", "rendezvous": True})
        assert run.makespan == 41


def hold_to_real_schedulers(seeds: range) -> None:
    """Compare every op of drawn pipelines under all groups and flags, and the chosen settings."""
    pytest.importorskip("megatron.core")
    cases = [case for seed in seeds for case in drawn_cases(seed)]
    runs = judged(Path(__file__).with_name("real_megatron.py"), cases)["runs"]
    makespans = []
    for case, ops in zip(cases, runs, strict=True):
        assert ops_of(simulated(case)) == set(map(tuple, ops)), case
        makespans.append(max(end for *_, end in ops))
    makespan_of = {id(c): span for c, span in zip(cases, makespans, strict=True)}
    for group in alike(cases):
        result = solved(instance_of(group[0]), "megatron")
        chosen = next(c for c in group if has_settings(c, result.runtime.settings))
        real = [makespan_of[id(case)] for case in group]
        assert result.value == makespan_of[id(chosen)] == min(real), chosen


@pytest.mark.runtimes
@pytest.mark.parametrize("first", [0, 12])
def test_the_real_schedulers_run_every_op_so_and_none_of_their_settings_is_better(
    first: int,
) -> None:
    hold_to_real_schedulers(range(first, first + 12))


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(24, 300, 12))
def test_many_ops_as_the_real_schedulers_run_them(first: int) -> None:
    hold_to_real_schedulers(range(first, first + 12))
