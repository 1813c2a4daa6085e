"""Two files compared: every sort of regression by name, and nothing else."""

from __future__ import annotations

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.bench.file import BenchRecord
from ppsolve.solver.studies.bench.report.comparison import Comparison, compare
from tests.studies.bench.results import crashed, proved, unproved


def compared(
    before: list[BenchRecord] | BenchRecord,
    after: list[BenchRecord] | BenchRecord,
    tolerance: float = 0.0,
) -> Comparison:
    old, new = (
        [one] if isinstance(one, BenchRecord) else one for one in (before, after)
    )
    return compare(old, new, tolerance, ("old.jsonl", "new.jsonl"))


def told(comparison: Comparison) -> list[tuple[str, str, str]]:
    return [(one.change.value, one.before, one.after) for one in comparison.regressions]


UNPROVED = {"status": "FEASIBLE", "seconds_to_proof": None, "gap": 0.0}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (unproved(), unproved(value=202), [("value", "200", "202")]),
        (
            unproved(),
            unproved(value=None, status="UNKNOWN"),
            [("value", "200", "none")],
        ),
        (unproved(), unproved(bound=179), [("bound", "180", "179")]),
        (unproved(), unproved(bound=None), [("bound", "180", "none")]),
        (
            proved(),
            proved(**{**UNPROVED, "bound": 90}),
            [("proof", "OPTIMAL, bound 100", "FEASIBLE, bound 90")],
        ),
        (
            proved(),
            proved(**{**UNPROVED, "value": 110, "bound": None}),
            [
                ("value", "100", "110"),
                ("proof", "OPTIMAL, bound 100", "FEASIBLE, no bound"),
            ],
        ),
        (
            crashed(failure=None, error=None),
            crashed(),
            [("failure", "UNKNOWN", "crash")],
        ),
        (
            proved(),
            proved(failure="memory", value=None),
            [("failure", "OPTIMAL", "memory")],
        ),
        (crashed(), crashed(failure="timeout"), []),
        (crashed(), proved(instance="three", family="b"), []),
        (unproved(), unproved(value=199, bound=181), []),
        (proved(), proved(), []),
    ],
)
def test_regressions(
    before: BenchRecord, after: BenchRecord, expected: list[tuple[str, str, str]]
) -> None:
    assert told(compared(before, after)) == expected


def test_regressions_say_by_how_much() -> None:
    (found,) = compared(unproved(), unproved(value=220)).regressions
    assert (found.family, found.instance, found.size) == (
        "a",
        "two",
        pytest.approx(0.1),
    )
    (found,) = compared(unproved(), unproved(bound=90)).regressions
    assert found.size == pytest.approx(-0.5)


def test_improvements_are_regressions_the_other_way_round() -> None:
    comparison = compared(unproved(value=250, bound=100), unproved())
    assert comparison.regressions == ()
    found = [
        (one.change, one.before, one.after, one.size) for one in comparison.improvements
    ]
    assert found == [
        ("value", "250", "200", pytest.approx(-0.2)),
        ("bound", "100", "180", pytest.approx(0.8)),
    ]
    (first,) = compared(unproved(bound=0), unproved()).improvements
    assert (first.before, first.after, first.size) == ("0", "180", None)


def test_tolerance_is_a_share() -> None:
    assert told(compared(unproved(), unproved(value=202), tolerance=0.01)) == []
    assert len(told(compared(unproved(), unproved(value=203), tolerance=0.01))) == 1
    assert told(compared(unproved(), unproved(bound=179), tolerance=0.01)) == []
    assert len(told(compared(unproved(), unproved(bound=170), tolerance=0.01))) == 1


def test_rounding_is_no_regression() -> None:
    assert told(compared(unproved(), unproved(value=200 * (1 + 1e-12)))) == []


def test_other_limits_are_told() -> None:
    assert compared(unproved(time_limit=0), unproved(time_limit=60)).has_other_limit


def test_instances_of_one_file_only_are_no_regressions() -> None:
    comparison = compared([proved(), crashed()], [unproved(), proved()])
    assert (comparison.instances, comparison.regressions) == (1, ())
    assert (comparison.only_before, comparison.only_after) == (("b/three",), ("a/two",))


def test_versions_and_keys_do_not_tell_instances_apart() -> None:
    later = unproved(key="other", value=210, settings={"version": "9"}, machine="m2")
    comparison = compared(unproved(settings={"version": "8"}), later)
    assert told(comparison) == [("value", "200", "210")]
    assert comparison.is_other_machine


def test_settings_tell_runs_of_one_instance_apart() -> None:
    short, long = unproved(time_limit=1), unproved(key="k9", time_limit=9, value=190)
    worse = unproved(key="k9", time_limit=9, value=195)
    assert told(compared([short, long], [worse, short])) == [("value", "190", "195")]
    seeds = [
        unproved(key=str(k), settings={"seed": k}, value=200 + k) for k in range(3)
    ]
    assert told(compared(seeds, seeds[::-1])) == []


def test_content_tells_instances_of_one_name_apart() -> None:
    whole, split = (
        unproved(content="w"),
        unproved(key="k9", content="s", value=150, bound=150),
    )
    assert told(compared([whole, split], [split, whole])) == []
    other = compared(whole, split)
    assert (other.instances, other.only_before, other.only_after) == (
        0,
        ("a/two",),
        ("a/two",),
    )
    assert compared(unproved(), split).instances == 1
    failed = unproved(
        content="w", failure="crash", objective=None, value=None, bound=None
    )
    assert told(compared(whole, failed)) == [("failure", "FEASIBLE", "crash")]


def test_one_instance_twice_with_one_setting_is_refused() -> None:
    twice = [unproved(), unproved(key="k9")]
    with pytest.raises(InputError) as caught:
        compared(unproved(), twice)
    assert str(caught.value) == (
        'new.jsonl: line 2: instance: "two" of family "a" appears twice with the same settings: '
        "expected one record of it in a file that is compared"
    )


def test_other_units_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        compared(unproved(), unproved(time_unit="ms"))
    assert str(caught.value) == (
        'new.jsonl: time_unit: "two" of family "a" is in ms, in old.jsonl it is in us: expected '
        "files about the same instances"
    )


def test_bounds_above_values_of_the_other_file_contradict() -> None:
    comparison = compared(unproved(bound=180), unproved(value=170, bound=160))
    (found,) = comparison.contradictions
    assert found.text == "the bound 180 is above the value 170 found now"
    comparison = compared(unproved(value=170, bound=160), unproved(bound=180))
    assert [one.text for one in comparison.contradictions] == [
        "the bound 180 is above the value 170 found before"
    ]
