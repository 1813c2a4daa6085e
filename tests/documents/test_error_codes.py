"""Codes, fields and expected values of errors, which programs read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ppsolve
from ppsolve.models.documents.errors import (
    DeadlockError,
    ErrorCode,
    InputError,
    MemoryDeadlockError,
    NotApplicableError,
    PpsolveError,
)

PIPELINE: dict[str, Any] = {
    "kind": "pipeline",
    "num_devices": 2,
    "num_microbatches": 4,
    "times": {"forward": 1, "backward": 2},
}
PLAN: dict[str, Any] = {
    "kind": "plan",
    "model": {
        "microbatch_sizes": [1],
        "layers": [{"forward": 1, "backward": 2}, {"forward": 1, "backward": 2}],
    },
    "cluster": {"devices_per_node": 2, "within_node": {"latency": 1}},
    "search": {"batch_sizes": [4]},
}


def refused(changes: dict[str, Any]) -> tuple[str, str | None, Any]:
    with pytest.raises(InputError) as caught:
        ppsolve.parse_instance(PIPELINE | changes)
    return caught.value.code, caught.value.field, caught.value.expected


@pytest.mark.parametrize(
    ("changes", "code", "field", "expected"),
    [
        ({"num_devices": 0}, "range", "num_devices", "greater than or equal to 1"),
        ({"num_devices": "x"}, "type", "num_devices", "a whole number"),
        ({"times": 3}, "type", "times", "an object"),
        ({"times": {"forward": 1, "backward": -2}}, "range", "times.backward", "a number >= 0"),
        ({"times": {"forward": [1, None], "backward": 2}}, "type", "times.forward[1]",
         "a number, or a list with one entry per stage (a number or one per micro-batch)"),
        ({"times": {"forward": "1 lb", "backward": 2}}, "unit", "times.forward", None),
        ({"objective": "speed"}, "unknown-name", "objective", "'makespan' or 'device_span'"),
        ({"placement": "vshap"}, "unknown-name", "placement", "a known placement"),
        ({"kind": "tube"}, "unknown-name", "kind", ("pipeline", "graph", "kfac", "overlap")),
        ({"memory": {}}, "missing", "memory.capacity", None),
        ({"times": {"forward": [1], "backward": 2}}, "length", "times.forward",
         "a number or 2 entries (one per stage)"),
        ({"placement": "linear", "stages_per_device": 2}, "conflict", "stages_per_device",
         '1 with placement "linear"'),
        ({"schema": 2}, "value", "schema", "1 (the only version)"),
    ],
)  # fmt: skip
def test_an_error_has_a_code_a_field_and_what_is_expected(
    changes: dict[str, Any], code: str, field: str, expected: Any
) -> None:
    assert refused(changes) == (code, field, expected)


def test_an_unknown_field_comes_with_all_fields_there_are() -> None:
    code, field, expected = refused({"p2p": {"latency": 1, "delay": 2}})
    assert (code, field) == ("unknown-field", "p2p.delay")
    assert "latency" in expected and "delay" not in expected


def test_files_and_texts_have_codes_of_their_own(tmp_path: Any) -> None:
    path = tmp_path / "half.json"
    path.write_text('{"kind": ')
    codes = []
    for file in (tmp_path / "none.json", path):
        with pytest.raises(InputError) as caught:
            ppsolve.load_instance(file)
        codes.append(caught.value.code)
    assert codes == [ErrorCode.FILE, ErrorCode.SYNTAX]


def test_unknown_names_come_with_all_right_names() -> None:
    calls: list[tuple[Callable[[], object], str, str]] = [
        (lambda: ppsolve.simulate(ppsolve.parse_instance(PIPELINE), "1f2b"), "1f1b", ""),
        (lambda: ppsolve.optimize(ppsolve.parse_instance(PIPELINE), runtime="tork"),
         "torch", "runtime"),
        (lambda: ppsolve.optimize(ppsolve.parse_instance(PIPELINE), params={"exact.x": 1}),
         "exact.quick_ops", ""),
    ]  # fmt: skip
    for call, right, field in calls:
        with pytest.raises(InputError) as caught:
            call()
        error = caught.value
        assert (error.code, error.field or "") == (ErrorCode.UNKNOWN_NAME, field)
        assert right in (error.expected or ())


def test_a_schedule_that_breaks_a_rule_has_a_code() -> None:
    instance = ppsolve.parse_instance(PIPELINE)
    broken = ppsolve.optimize(instance, time_limit=0).model_dump(mode="json")
    broken["schedule"]["ops"].pop()
    with pytest.raises(InputError) as caught:
        ppsolve.optimize(instance, start=broken, time_limit=0)
    assert caught.value.code == ErrorCode.SCHEDULE


def test_requests_for_plans_are_parsed_with_the_same_errors() -> None:
    assert ppsolve.parse_request(PLAN).cluster.devices == 2
    with pytest.raises(InputError) as caught:
        ppsolve.parse_request(PLAN | {"cluster": {"devices_per_node": 2}})
    error = caught.value
    assert (error.code, error.field) == ("missing", "cluster.within_node")


def test_an_error_that_is_about_another_field_keeps_its_code() -> None:
    error = InputError("expected 1, got 2", code=ErrorCode.RANGE, expected="1")
    moved = error.located("file").about("field")
    assert (moved.code, moved.expected) == ("range", "1")
    assert str(moved) == "file: field: expected 1, got 2"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("expected a number, got null", "a number"),
        ("expected a known placement, got x; known: linear", "a known placement"),
        ("expected a file, this is a directory", "a file"),
        ('expected "a" or "b"', '"a" or "b"'),
        ("no such file", None),
    ],
)
def test_a_message_says_what_is_expected(message: str, expected: str | None) -> None:
    assert InputError(message).expected == expected


def test_errors_that_are_not_about_input_have_codes_too() -> None:
    errors: list[PpsolveError] = [
        NotApplicableError("needs memory"),
        DeadlockError(["a", "b"]),
        MemoryDeadlockError("a", "pool"),
    ]
    assert [error.code for error in errors] == [
        "not-applicable",
        "deadlock",
        "memory-deadlock",
    ]
    assert all(error.field is None for error in errors)
