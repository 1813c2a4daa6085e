"""Steps of a recorded run with the changes of its verdict, as instances."""

from __future__ import annotations

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.text import instance_data
from ppsolve.solver.api import api
from ppsolve.solver.studies.traces.diagnosis.diagnose import changed_instance
from tests.studies.traces import cases
from tests.studies.traces.test_diagnose import one_stage, run_of, uneven


def times(change: str) -> dict[str, list[float]]:
    """Return the times in us of the stages of `uneven`: F 10 and 20, B 20 and 40."""
    made = instance_data(changed_instance(uneven(), change))["times"]
    return {name: list(map(float, each)) for name, each in made.items()}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("reorder", {"forward": [10, 20], "backward": [20, 40]}),
        ("more memory", {"forward": [10, 20], "backward": [20, 40]}),
        ("even-split", {"forward": [15, 15], "backward": [30, 30]}),
        # 30 and 60 us a micro-batch: both devices take 45.
        ("relieve slow device", {"forward": [15, 15], "backward": [30, 30]}),
        (
            "split-backward",
            {
                "forward": [10, 20],
                "backward_input": [10, 20],
                "backward_weight": [10, 20],
            },
        ),
        ("more-chunks", {"forward": [5, 10, 5, 10], "backward": [10, 20, 10, 20]}),
    ],
)
def test_times_are_those_of_the_change(change, expected):
    assert times(change) == expected


def test_memory_is_what_the_verdict_assumes():
    held = changed_instance(cases.trace(), "reorder").memory
    assert [float(each) for each in held.capacity] == [2, 1]
    more = changed_instance(cases.trace(), "more-memory", capacity=[4]).memory
    assert [float(each) for each in more.capacity] == [5, 5]
    chunks = changed_instance(cases.trace(), "more-chunks")
    assert [float(each) for each in chunks.memory.capacity] == [4, 4]
    assert chunks.stages_per_device == 2


def test_the_best_order_of_the_instance_takes_what_the_verdict_says():
    # 10 before the first F1, 2 x (20 + 40) on device 1, 20 after its last B.
    found = api.optimize(changed_instance(uneven(), "more memory"), time_limit=10)
    assert (float(found.makespan), found.status.value) == (150, "OPTIMAL")


def test_an_exchange_is_about_a_step_with_all_its_replicas():
    trace = run_of([one_stage([10, 10]), one_stage([1, 1])])
    found = changed_instance(trace, "exchange")
    assert (found.num_microbatches, found.replicas.count) == (4, 2)
    assert float(api.optimize(found, time_limit=10).makespan) == 22_000


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("more-chunk", 'unknown change "more-chunk"; did you mean "more chunks"'),
        ("exchange", "exchange means nothing here: there is one replica"),
    ],
)
def test_changes_that_are_none_are_refused(change, text):
    with pytest.raises(InputError, match=text):
        changed_instance(cases.trace(), change)
