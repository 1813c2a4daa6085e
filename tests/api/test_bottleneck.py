"""The bottleneck of a result: the strongest rule, what it is about, what would lower it."""

import io
import json

import pytest
from rich.console import Console

import ppsolve
from ppsolve.models.core.result import Bottleneck, Result
from ppsolve.solver.bounds.one_machine import Reason, largest
from ppsolve.solver.bounds.registry import BOUNDS, RULES
from ppsolve.solver.exact.question import FEW_DEVICES
from ppsolve.solver.views.reports import report


def solved(**fields):
    base = {
        "num_devices": 2,
        "num_microbatches": 4,
        "times": {"forward": 1, "backward": 2},
    }
    return ppsolve.optimize(ppsolve.PipelineInstance(**base | fields), time_limit=20)


def test_every_rule_has_a_name_and_words_of_its_own():
    assert len(RULES) == len(BOUNDS)
    assert FEW_DEVICES in RULES
    assert all(rule.why and rule.lowered_by for rule in BOUNDS)
    assert len({rule.why for rule in BOUNDS}) == len(BOUNDS)


def test_the_largest_reason_is_the_first_of_equals():
    assert largest([Reason(3, 1), Reason(4, 2), Reason(4, 0)]) == (4, 2)
    assert largest([]) == (0, -1)


def test_the_work_of_the_slowest_device():
    """Device 1 has 4 x 15 of work, after a forward and before a backward of device 0: 63."""
    found = solved(times={"forward": [1, 5], "backward": [2, 10]})
    assert found.value == 63
    known = found.bottleneck
    assert (known.rule, known.about, known.value, known.work) == (
        "work",
        "device 1",
        63,
        60,
    )
    assert (known.without_memory, known.raised_by) == (None, None)
    assert "the work of device 1" in known.why
    assert "less work on device 1" in known.lowered_by


def test_a_single_micro_batch_is_a_critical_path():
    known = solved(num_microbatches=1).bottleneck
    assert (known.rule, known.about, known.value, known.work) == (
        "critical-path",
        None,
        6,
        None,
    )


def test_memory_names_its_device_and_the_bound_without_it():
    """One micro-batch at a time on device 0: 4 x (1 + 1 + 2 + 2); with room, 15 is the work."""
    found = solved(memory={"capacity": 1, "activation": 1})
    assert found.value == 24
    known = found.bottleneck
    assert known.rule in {"memory-cycle", "first-return", "memory-work"}
    assert (known.value, known.without_memory) == (24, 15)
    assert "memory" in known.lowered_by


def test_device_spans_name_their_device():
    found = solved(
        times={"forward": [1, 5], "backward": [2, 10]}, objective="device_span"
    )
    assert (found.bottleneck.about, found.bottleneck.work) == ("device 1", 60)


def test_nothing_is_said_where_nothing_can_be():
    infeasible = solved(memory={"capacity": 1, "activation": 2})
    assert (infeasible.status, infeasible.bottleneck) == ("INFEASIBLE", None)
    empty = ppsolve.optimize(
        ppsolve.GraphInstance(resources=[], ops=[{"id": "a", "duration": 0}])
    )
    assert (empty.value, empty.bottleneck) == (0, None)


def test_it_is_in_json_and_read_again():
    found = solved()
    data = json.loads(found.model_dump_json())
    assert data["bottleneck"]["rule"] == found.bottleneck.rule
    assert Result.model_validate(data).bottleneck == found.bottleneck


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "it is so (work: 15 us); it falls with less"),
        ({"raised_by": "cp-sat"}, "it is so (work: 15 us, more by cp-sat); it falls"),
        (
            {"without_memory": 12},
            "it is so (work: 15 us; 12 us with any memory); it falls",
        ),
    ],
)
def test_one_sentence_of_the_report(fields, words):
    known = Bottleneck(
        rule="work", value=15, why="it is so", lowered_by="less", **fields
    )
    console = Console(width=200, color_system=None, record=True, file=io.StringIO())
    console.print(report(solved().model_copy(update={"bottleneck": known})))
    text = console.export_text()
    assert words in text


def test_unequal_micro_batches_have_a_bottleneck_too():
    rows = [[3, 1, 2, 5], [2, 4, 1, 1]]
    found = solved(times={"forward": rows, "backward": rows})
    assert found.status == "OPTIMAL"
    assert found.bottleneck.rule in RULES


def test_replicas_that_exchange_micro_batches_have_a_bottleneck_too():
    times = {"forward": [[3, 1, 2, 5]], "backward": [[2, 4, 1, 1]]}
    found = solved(
        num_devices=1, times=times, replicas={"count": 2, "assignment": "free"}
    )
    assert found.bottleneck.rule == "exchange"
