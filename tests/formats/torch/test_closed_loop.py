"""From stages to an instance, its optimum, a run of it, the trace of the run, and its verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.cli.main import build
from ppsolve.solver.formats.detect import read_trace
from ppsolve.solver.formats.torch.profile import Repeats, profile_stages
from ppsolve.solver.formats.torch.runtime import (
    compare_run,
    measured_again,
    predictions_of,
    steps_of,
    timed_again,
)
from tests.docs.snippets import Reader, snippets_of
from tests.formats.torch.judging import CLOSE
from tests.formats.torch.world import World
from tests.paths import ROOT

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TOLD = [(0.12, 0.0, 0.28), (0.20, 0.24, 0.16), (0.16, 0.14, 0.18), (0.24, 0.20, 0.12)]
"""Seconds of the ops of each stage; on the first the whole backward is a weight gradient."""


@pytest.fixture(scope="module")
def solved(world: World) -> tuple[ppsolve.PipelineInstance, ppsolve.Result]:
    from tests.formats.torch import emulation

    emulation.AWAKE["is"] = True
    stages = [emulation.Emulated(emulation.Stretch(*told)) for told in TOLD]
    x = torch.zeros(1, 4)
    instance = profile_stages(
        stages,
        x,
        num_microbatches=3,
        loss_fn=emulation.loss,
        target=x,
        repeats=Repeats(1, 3),
    )
    return instance, ppsolve.optimize(instance, time_limit=20, deterministic=True)


@pytest.fixture(scope="module")
def folder(
    world: World,
    solved: tuple[ppsolve.PipelineInstance, ppsolve.Result],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    from tests.formats.torch.emulation import Stretch, recorded

    found = tmp_path_factory.mktemp("traces")
    result = solved[1]
    world.run(
        recorded,
        4,
        results=[(type(result), result.model_dump_json())],
        stretches=[Stretch(*told) for told in TOLD],
        places=[0, 1, 2, 3],
        folder=str(found),
    )
    return found


def test_each_op_and_the_step_take_the_predicted_time(
    solved: Any, folder: Path
) -> None:
    rows = compare_run(solved[1], read_trace([folder]))
    print(
        "\n".join(f"{row.name}: {row.predicted:.0f} {row.measured:.0f}" for row in rows)
    )
    wanted = {
        "step",
        "replay",
        *(f"{kind}{stage}" for kind in "FIW" for stage in range(4)),
    }
    assert {row.name for row in rows} == wanted
    assert {row.name: row.error for row in rows if abs(row.error) > CLOSE} == {}


def test_the_trace_is_read_and_judged(
    solved: Any, folder: Path, tmp_path: Path
) -> None:
    done = CliRunner().invoke(
        build(),
        [
            "convert",
            "trace",
            str(folder),
            "--median",
            "-o",
            str(tmp_path / "median.json"),
        ],
    )
    assert done.exit_code == 0, done.output
    median = ppsolve.load_instance(tmp_path / "median.json")
    assert (median.num_stages, median.num_microbatches) == (4, 3)
    done = CliRunner().invoke(
        build(), ["diagnose", str(folder), "--json", "--time-limit", "20"]
    )
    assert done.exit_code == 0, done.output
    predicted = float(solved[1].makespan) / 1e6
    for step in json.loads(done.stdout)["steps"]:
        (verdict,) = step["replicas"]
        assert verdict["recorded"] == pytest.approx(predicted, rel=CLOSE)
        # The recorded order is an optimal one, so that reordering gains noise at most.
        assert verdict["bound"] >= (1 - CLOSE) * verdict["replay"]


def test_schedules_in_turn_take_their_own_times(
    world: World,
    solved: tuple[ppsolve.PipelineInstance, ppsolve.Result],
    tmp_path: Path,
) -> None:
    from tests.formats.torch.emulation import Stretch, recorded

    instance, best = solved
    other = ppsolve.simulate(instance, "zb-h2")
    world.run(
        recorded,
        4,
        results=[(type(one), one.model_dump_json()) for one in (best, other)],
        stretches=[Stretch(*told) for told in TOLD],
        places=[0, 1, 2, 3],
        folder=str(tmp_path),
        steps=2,
    )
    trace = read_trace([tmp_path])
    run, beside = (steps_of(trace, number, 2) for number in (0, 1))
    assert (len(list(run.parts())), len(list(beside.parts()))) == (2, 2)
    assert float(other.makespan or 0) > 1.05 * float(best.makespan or 0)
    for result, part in ((best, run), (other, beside)):
        assert abs(compare_run(result, part)[0].error) <= CLOSE
    for predicted in predictions_of(best, beside):
        assert predicted == pytest.approx(float(best.makespan or 0), rel=CLOSE)
    again = measured_again(instance, beside)
    assert float(timed_again(best, again).makespan or 0) == pytest.approx(
        float(best.makespan or 0), rel=CLOSE
    )


def test_another_run_is_refused(folder: Path) -> None:
    other = ppsolve.PipelineInstance(
        num_devices=2, num_microbatches=3, times={"forward": 1, "backward": 1}
    )
    with pytest.raises(InputError, match=r"B0, B1, F2, F3, I0, .* are in one only"):
        compare_run(ppsolve.simulate(other, "1f1b"), read_trace([folder]))


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder and the output of the commands that the page shows, typed by a reader."""
    place = tmp_path_factory.mktemp("example")
    page = ROOT / "docs" / "how-to" / "pytorch.md"
    shown = snippets_of(page.read_text(encoding="utf-8"))
    commands = next(each for each in shown if "closed_loop.py" in each.text)
    reader = Reader(page, place)
    reader.follow(commands)
    return place / "loop", reader.printed


def test_the_example_prints_predictions_and_ops(example: tuple[Path, str]) -> None:
    folder, printed = example
    print(printed)
    names = [line[:15].strip() for line in printed.splitlines()]
    ops = [f"{kind}{stage}" for kind in "FIW" for stage in range(4)]
    rows = ["step, by stages", "step, by others", "step", "replay", *ops]
    assert names[: len(rows)] == rows
    # The diagnosis: whether the recorded order was proved optimal is a matter of time.
    assert "What would help" in names[len(rows) :]
    for name in ("first", "run"):
        files = sorted(file.name for file in (folder / name).glob("*.json"))
        assert files == ["rank0.json", "rank1.json"]
