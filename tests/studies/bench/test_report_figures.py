"""Figures of reports, each worked out by hand on three records."""

from __future__ import annotations

from typing import Any

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.bench.file import BenchRecord
from ppsolve.solver.studies.bench.report.cases import Method, OutcomeState, Role
from ppsolve.solver.studies.bench.report.report import (
    FamilyFigures,
    Report,
    bench_report,
)
from ppsolve.solver.studies.bench.report.rows import (
    FamilyRow,
    MethodRow,
    ReportCurveParams,
    Spread,
)
from tests.studies.bench.results import (
    bounds,
    crashed,
    heuristic,
    peer,
    proved,
    results,
    unproved,
)


def report_of(*records: BenchRecord) -> Report:
    return bench_report(results(*records), "r.jsonl")


@pytest.fixture
def part() -> FamilyFigures:
    """Return the figures of family a: one record proved 100, one with 200 where 190 is best."""
    return report_of().families[0]


def method(part: FamilyFigures, name: str) -> MethodRow:
    return next(row for row in part.methods if row.method.name == name)


def spread(count: int, mean: float, median: float, worst: float, at: str) -> Spread:
    return Spread(
        count, pytest.approx(mean), pytest.approx(median), pytest.approx(worst), at
    )


def test_spread_has_mean_median_and_the_place_of_the_worst() -> None:
    pairs = [(1.0, "a"), (None, "b"), (6.0, "c"), (2.0, "d")]
    assert Spread.of(pairs) == spread(3, 3, 2, 6, "c")
    assert Spread.of([(None, "a")]) == Spread(0, None, None, None, None)


def test_family_row(part: FamilyFigures) -> None:
    assert part.total == FamilyRow(
        "a", instances=2, solved=2, proved=1, failures=0,
        gap=spread(2, 0.05, 0.05, 0.1, "two"),
        to_best=spread(2, 2.25, 2.25, 4, "two"),
        to_proof=spread(1, 1, 1, 1, "one"),
        seconds=11,
    )  # fmt: skip


def test_a_failed_run_has_no_figures_but_its_time() -> None:
    part = report_of().families[1]
    none = Spread(0, None, None, None, None)
    assert part.total == FamilyRow("b", 1, 0, 0, 1, none, none, none, 2)
    assert method(part, "ppsolve").failed == 1


def test_every_family_together() -> None:
    total = report_of().every.total
    assert (total.family, total.instances, total.solved, total.proved) == (
        "all",
        3,
        2,
        1,
    )
    assert (total.failures, total.seconds) == (1, 13)
    assert [part.total.family for part in report_of().families] == ["a", "b"]


def test_method_rows(part: FamilyFigures) -> None:
    """Best are 100 and 190: gpipe is 50 and 60 above, ours 0 and 10, the peer never.

    1F1B has a value on the second one alone, which is what all have in common.
    """
    none = Spread(0, None, None, None, None)
    assert part.methods == (
        MethodRow(
            Method(Role.OURS, "ppsolve"), 2, 2, 1, 1, 0, 0, 0,
            spread(2, 5 / 190, 5 / 190, 10 / 190, "a/two"),
            spread(1, 10 / 190, 10 / 190, 10 / 190, "a/two"), spread(2, 5.5, 5.5, 10, "a/two"),
        ),
        MethodRow(
            Method(Role.PEER, "other"), 2, 2, 1, 2, 0, 0, 0,
            spread(2, 0, 0, 0, "a/one"), spread(1, 0, 0, 0, "a/two"), spread(2, 3, 3, 3, "a/one"),
        ),
        MethodRow(
            Method(Role.HEURISTIC, "gpipe"), 2, 2, 0, 0, 0, 0, 0,
            spread(2, (0.5 + 60 / 190) / 2, (0.5 + 60 / 190) / 2, 0.5, "a/one"),
            spread(1, 60 / 190, 60 / 190, 60 / 190, "a/two"),
            spread(2, 0.02, 0.02, 0.03, "a/two"),
        ),
        MethodRow(
            Method(Role.HEURISTIC, "1f1b"), 2, 1, 0, 0, 1, 0, 0,
            spread(1, 10 / 190, 10 / 190, 10 / 190, "a/two"),
            spread(1, 10 / 190, 10 / 190, 10 / 190, "a/two"), none,
        ),
        MethodRow(Method(Role.HEURISTIC, "zbv"), 2, 0, 0, 0, 0, 0, 2, none, none, none),
    )  # fmt: skip


def test_methods_that_solved_few_do_not_shrink_what_all_have_in_common() -> None:
    """Of eight instances a solved all, b seven, c the first two, which is a quarter, d the last."""
    solved = {"a": range(8), "b": range(7), "c": range(2), "d": range(7, 8)}
    values = {"a": 110, "b": 120, "c": 130, "d": 140}
    records = [
        unproved(
            key=f"k{n}", instance=f"{n}", value=100, bound=90, peers=None,
            heuristics=[heuristic(name, values[name]) for name in solved if n in solved[name]],
        )
        for n in range(8)
    ]  # fmt: skip
    part = report_of(*records).families[0]
    counts = {
        row.method.name: (row.excess.count, row.common.count) for row in part.methods
    }
    assert counts == {
        "ppsolve": (8, 2),
        "a": (8, 2),
        "b": (7, 2),
        "c": (2, 2),
        "d": (1, 0),
    }
    assert method(part, "c").common == spread(2, 0.3, 0.3, 0.3, "a/0")


def test_the_value_of_an_infeasible_heuristic_does_not_count() -> None:
    cheat = heuristic("cheat", 50, status="infeasible", reason="memory: too much")
    part = report_of(proved(heuristics=[cheat])).families[0]
    assert method(part, "ppsolve").wins == 1
    assert method(part, "cheat").excess.count == 0


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("OPTIMAL", "solved"),
        ("feasible", "solved"),
        ("INFEASIBLE", "proved"),
        ("not_applicable", "not_applicable"),
        ("invalid", "failed"),
        ("UNKNOWN", "failed"),
    ],
)
def test_values_of_peers_count_if_their_status_says_so(status: str, state: str) -> None:
    part = report_of(proved(value=120, peers=peer(100, 100, status))).families[0]
    assert getattr(method(part, "other"), state) == 1
    assert method(part, "ppsolve").wins == (status not in {"OPTIMAL", "feasible"})
    assert method(part, "other").proved == (status in {"OPTIMAL", "INFEASIBLE"})


def test_a_proof_that_there_is_no_schedule_is_an_answer() -> None:
    empty = {
        "status": "INFEASIBLE",
        "value": None,
        "gap": None,
        "peers": None,
        "heuristics": [],
    }
    part = report_of(proved(**empty)).families[0]
    assert (part.total.solved, part.total.proved) == (1, 1)
    assert part.profiles == ()
    assert part.curve.points == ((1.0, 0.0),)


def test_reasons_are_counted_without_their_numbers() -> None:
    fuller = heuristic(
        "gpipe", None, status="infeasible", reason="memory: device 7 holds 9 of 3.5"
    )
    other = unproved(heuristics=[fuller, heuristic("x", None, status="failed")])
    rows = report_of(proved(), other).reasons
    assert [(row.state, row.reason, row.count, row.methods) for row in rows] == [
        (OutcomeState.FAILED, "no reason given", 1, ("x",)),
        (OutcomeState.INFEASIBLE, "memory: device # holds # of #", 1, ("gpipe",)),
        (
            OutcomeState.INFEASIBLE,
            "memory: device # holds # of # at # us",
            1,
            ("1f1b",),
        ),
    ]
    twice = report_of(proved(), proved(key="k4", instance="four")).reasons
    assert [(row.count, row.methods) for row in twice] == [(2, ("1f1b",))]


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("E: 12 of 3,456.5 (rules2.py:120)", "E: # of # (rules2.py:120)"),
        ("E: no (8) left (a.py:3)", "E: no (#) left (a.py:3)"),
        ("E: only 8", "E: only #"),
        (f"E: {'long ' * 100}(a.py:3)", f"E: {'long ' * 100}(a.py:3)"),
    ],
)
def test_reasons_of_failures_keep_their_line_of_code(reason: str, told: str) -> None:
    broken = heuristic("mine", None, status="failed", reason=reason)
    assert [row.reason for row in report_of(proved(heuristics=[broken])).reasons] == [
        told
    ]


def test_profiles_are_shares_within_a_ratio(part: FamilyFigures) -> None:
    found = {profile.method.name: profile.steps for profile in part.profiles}
    assert found["other"] == ((1.0, 1.0),)
    assert found["ppsolve"] == ((1.0, 0.5), (pytest.approx(200 / 190), 1.0))
    assert found["gpipe"] == ((pytest.approx(250 / 190), 0.5), (1.5, 1.0))
    assert found["1f1b"] == ((pytest.approx(200 / 190), 0.5),)
    assert found["zbv"] == ()


def test_profiles_count_what_a_method_did_not_solve(part: FamilyFigures) -> None:
    profile = next(one for one in part.profiles if one.method.name == "1f1b")
    shares = [profile.share(excess) for excess in (0, 0.05, 0.06, 9)]
    assert shares == [0, 0, 0.5, 0.5]


def test_mean_gap_over_time(part: FamilyFigures) -> None:
    """At 1 s: 0 and 120 of 220; from 4 s on: 0 and 20 of 200."""
    assert part.curve.points == ((1, pytest.approx(60 / 220)), (4, 0.05), (10, 0.05))


def test_failures_count_as_unknown_in_the_curve() -> None:
    assert report_of().every.curve.last == pytest.approx((0 + 0.1 + 1) / 3)
    assert report_of(crashed()).every.curve.points == ((2.0, 1.0),)


def test_curves_are_thinned_and_keep_their_ends() -> None:
    moments = [[0.02 + 0.05 * k, 1000 - k, 500] for k in range(190)]
    points = report_of(unproved(anytime=moments)).every.curve.points
    assert len(points) <= ReportCurveParams().most_times
    assert (points[0][0], points[-1]) == (pytest.approx(0.02), (10, pytest.approx(0.1)))
    assert list(points) == sorted(points)


def test_best_values_are_shared_by_runs_of_one_instance() -> None:
    longer = unproved(key="k9", value=185, time_limit=100, peers=None)
    part = report_of(unproved(peers=None), longer).families[0]
    assert method(part, "ppsolve").excess == spread(
        2, 7.5 / 185, 7.5 / 185, 15 / 185, "a/two"
    )


def test_instances_of_one_name_have_best_values_of_their_own() -> None:
    whole = unproved(content="whole", peers=None, path="whole.json")
    longer = unproved(key="k9", content="whole", value=185, time_limit=100, peers=None)
    split = unproved(
        key="k8", content="split", value=150, bound=150, peers=None, bounds=[]
    )
    report = report_of(whole, longer, split)
    assert report.contradictions == ()
    assert report.namesakes == {"a/two": 2}
    ours = method(report.families[0], "ppsolve")
    assert ours.wins == 2
    assert ours.excess == spread(3, 5 / 185, 0, 15 / 185, "a/two")
    assert report_of(whole, longer).namesakes == {}


def test_records_that_do_not_tell_their_content_go_by_name() -> None:
    split = unproved(key="k8", content="split", value=150, peers=None)
    assert len(report_of(unproved(peers=None), split).contradictions) == 4


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        (
            {"bounds": bounds(work=101)},
            ['the bound "work" 101 is above the value 100 of'],
        ),
        (
            {"bound": 101, "value": 101, "bounds": []},
            [
                'the bound "ppsolve, in the end" 101 is above',
                "ppsolve calls 101 optimal",
            ],
        ),
        (
            {"status": "INFEASIBLE", "value": None},
            ["ppsolve calls it infeasible, beside the value 100"],
        ),
        (
            {"peers": peer(90, 90, "infeasible")},
            ["other calls it infeasible, beside the value"],
        ),
        ({"bounds": bounds(work=100 + 1e-8)}, []),
    ],
)
def test_contradictions(changes: dict[str, Any], texts: list[str]) -> None:
    found = report_of(proved(**changes)).contradictions
    assert len(found) == len(texts)
    for contradiction, text in zip(found, texts, strict=True):
        assert (contradiction.family, contradiction.instance) == ("a", "one")
        assert text in contradiction.text


def test_values_of_zero_have_no_ratio() -> None:
    nothing = heuristic("gpipe", 5)
    part = report_of(
        proved(value=0, bound=0, peers=None, bounds=[], heuristics=[nothing])
    ).families[0]
    assert method(part, "ppsolve").excess.worst == 0
    assert method(part, "gpipe").excess.count == 0
    assert {one.method.name: one.steps for one in part.profiles} == {
        "ppsolve": ((1.0, 1.0),),
        "gpipe": (),
    }


def test_no_results() -> None:
    with pytest.raises(InputError, match=r"r.jsonl: expected results of a benchmark"):
        bench_report(results().__class__(), "r.jsonl")
