"""Every example runs and prints what its page promises."""

from __future__ import annotations

import runpy

import pytest

from tests.paths import ROOT

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))
FOR_TORCH = "closed_loop.py"
"""Needs torch, and prints times of the machine: tests/formats/torch runs it."""

PRINTED = {
    "check_schedule.py": [
        "as given: valid",
        "too early: precedence: B0.0 starts at 35 us, before B1.0 ends at 41 us + lag 1 us",
        "left out: missing: F1.0 is not scheduled",
    ],
    FOR_TORCH: [],
    "compare_heuristics.py": [
        "scan-4x8-1.5 1938407 OPTIMAL infeasible infeasible infeasible 0.00%",
        "scan-4x8-3 877173 OPTIMAL infeasible infeasible infeasible 2.15%",
        "scan-4x8-6 723447 OPTIMAL 21.42% 4.60% infeasible 0.00%",
    ],
    "goodput.py": [
        "24 observations, objective 0.0327",
        "a micro-batch of 32 takes 0.0818 s",
        "4 nodes, 32 replicas: batch 4096, 8600.1 /s",
    ],
    "job_shop.py": ["job-shop: OPTIMAL, 11 min"],
    "kfac_in_bubbles.py": [
        "bubbles: OPTIMAL, a refresh takes 2 iterations",
        "per device: [2, 2, 2, 1] at least [2, 2, 2, 1]",
        "pipefisher infeasible 1 iterations",
        "pipefisher-causal feasible 2 iterations",
    ],
    "listen_to_progress.py": [
        "bound memory-work - 858300",
        "bound cp-sat 877173 877173 gap 0.00%",
        "OPTIMAL because proved",
    ],
    "optimize_pipeline.py": [
        "uneven: OPTIMAL, 2655 us",
        "no schedule is shorter than 2655, says the bound work",
        "list-backward-first 2655 0.00%",
        "zb-h1 2775 4.52%",
    ],
    "overlap_program.py": [
        "two-batches: OPTIMAL",
        "original 960, exposed 360",
        "inductor-default 900, exposed 300",
        "best 660, exposed 60",
    ],
    "own_heuristic.py": [
        "OPTIMAL, 268 us",
        "1f1b feasible 0.00%",
        "__main__:eager infeasible memory: device 0 holds 4 of 3 at 30 us "
        "(too much from 30 us to 178 us)",
        "__main__:lazy feasible 63.43%",
    ],
    "primus_adapter.py": [
        "rank 0: F0/0 SF0/0 F1/0 SF1/0 RF0/1 F0/1 B0/1 SB0/1",
        "the loss is on rank 0",
    ],
    "step_scheduler.py": ["the same micro-batches: True, within the bound: True"],
}
"""Lines of each script's output, runs of spaces written as one."""


def test_every_example_has_its_lines() -> None:
    assert list(PRINTED) == SCRIPTS


@pytest.mark.parametrize("script", [name for name in SCRIPTS if name != FOR_TORCH])
def test_example_prints(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    lines = {" ".join(line.split()) for line in capsys.readouterr().out.splitlines()}
    assert set(PRINTED[script]) <= lines


def test_every_example_is_described() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [name for name in SCRIPTS if f"`{name}`" not in text] == []


LONGEST = {"closed_loop.py": 120}
"""A whole loop: two processes measure, solve, run, record and compare."""


@pytest.mark.parametrize("script", SCRIPTS)
def test_examples_are_short(script: str) -> None:
    lines = (EXAMPLES / script).read_text(encoding="utf-8").splitlines()
    assert len(lines) < LONGEST.get(script, 80)
