"""Random durations and the spread of makespans."""

import numpy as np
import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.heuristics.stress import replay as module
from ppsolve.solver.heuristics.stress.replay import Jitter, drawn

PIPELINE = ppsolve.PipelineInstance(
    name="two", num_devices=2, num_microbatches=4, times={"forward": 10, "backward": 20}
)


@pytest.fixture(scope="module")
def result():
    return ppsolve.optimize(PIPELINE, time_limit=1)


def test_without_jitter_every_run_is_the_plan(result):
    for entry in ppsolve.stress(result, 0, runs=3).entries:
        assert entry.planned == pytest.approx(entry.mean)
        assert (entry.p5, entry.worst) == pytest.approx((entry.planned, entry.planned))


def test_the_best_comes_first_and_others_are_held_against_it(result):
    best, *others = ppsolve.stress(result, 0.05, runs=500).entries
    assert best.name == result.best_by and best.planned == result.value
    assert best.stays_ahead is None and others
    other = next(entry for entry in others if entry.name == "gpipe")
    assert other.planned == next(
        e.makespan for e in result.heuristics if e.name == "gpipe"
    )


def test_the_same_seed_gives_the_same_answer_and_another_does_not(result):
    one, same, other = (
        ppsolve.stress(result, 0.05, runs=50, seed=s) for s in (1, 1, 2)
    )
    assert one == same
    assert one.entries != other.entries


def test_durations_do_not_depend_on_the_size_of_blocks(monkeypatch):
    problem = lower(PIPELINE)
    whole = np.concatenate(list(drawn(problem, Jitter({"*": 0.3}), 10, 7)), axis=1)
    monkeypatch.setattr(module, "BLOCK_NUMBERS", 3 * problem.num_ops)
    blocks = list(drawn(problem, Jitter({"*": 0.3}), 10, 7))
    assert [block.shape[1] for block in blocks] == [3, 3, 3, 1]
    assert np.array_equal(np.concatenate(blocks, axis=1), whole)


def test_mean_and_variation_are_those_asked_for():
    problem = lower(PIPELINE)
    found = np.concatenate(
        list(drawn(problem, Jitter({"F": 0.2, "*": 0.1}), 20_000, 0)), axis=1
    )
    variation = found.std(axis=1) / found.mean(axis=1)
    forward = problem.kind_mask("F")
    assert found.mean(axis=1) == pytest.approx(problem.duration, rel=0.01)
    assert variation[forward] == pytest.approx(0.2, rel=0.05)
    assert variation[~forward] == pytest.approx(0.1, rel=0.05)


def test_a_slow_device_takes_longer_by_its_factor(result):
    plain, slow = (
        ppsolve.stress(result, 0, slow=s, runs=1) for s in (None, {0: 2.0, 1: 2.0})
    )
    assert slow.entries[0].mean == pytest.approx(2 * plain.entries[0].mean)


@pytest.mark.parametrize(
    ("jitter", "options", "message"),
    [
        (
            -0.1,
            {},
            "--jitter: expected a coefficient of variation from 0 to 10, got -0.1",
        ),
        (float("nan"), {}, "--jitter: expected a coefficient of variation"),
        ({"Q": 0.1}, {}, '--jitter: no op is of kind "Q", expected F, B'),
        (0.1, {"runs": 0}, "--runs: expected 1 to 10000000 runs, got 0"),
        (0.1, {"slow": {2: 1.5}}, "--slow: expected a device from 0 to 1, got 2"),
        (0.1, {"slow": {0: 0.0}}, "--slow: expected a factor above 0, got 0"),
    ],
)
def test_wrong_options_are_named(result, jitter, options, message):
    with pytest.raises(InputError, match=f"^{message}"):
        ppsolve.stress(result, jitter, **options)


def test_a_result_without_a_schedule_is_refused():
    asked = ppsolve.PipelineInstance(
        num_devices=1,
        num_microbatches=1,
        times={"forward": 1, "backward": 1},
        memory={"capacity": 1, "activation": 2},
    )
    with pytest.raises(InputError, match="schedule"):
        ppsolve.stress(ppsolve.optimize(asked, time_limit=1), 0.1)
