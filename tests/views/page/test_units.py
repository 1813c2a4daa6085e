"""A page tells all times in one unit that has few digits."""

import json

import pytest

import ppsolve
from ppsolve.models.kinds.kfac.instance import TieBreak
from ppsolve.models.kinds.kfac.result import TieBreakEntry
from ppsolve.solver.views.drawings import drawing_of
from ppsolve.solver.views.page.schedules import (
    in_one_unit,
    read_shown,
)
from ppsolve.solver.views.page.tables import peaks
from ppsolve.solver.views.time_units import in_unit, readable_unit
from tests.paths import ROOT
from tests.views.page.cases import pipeline, shown_of


@pytest.fixture(scope="module")
def refresh():
    """Return what the heuristics make of a recorded refresh, in nanoseconds."""
    path = ROOT / "instances/kfac/measured/bert-base-1f1b-4x4.json"
    return ppsolve.optimize(ppsolve.load_instance(path), time_limit=0)


@pytest.mark.parametrize(
    ("unit", "longest", "expected"),
    [
        ("ns", 999_999, "ns"),
        ("ns", 1_000_000, "us"),
        ("ns", 1_661_798_059, "ms"),
        ("us", 723_447, "us"),
        ("ms", 26_060.9, "ms"),
        ("ms", 2e6, "s"),
        ("s", 1e9, "s"),
        ("clocks", 1e9, "clocks"),
    ],
)
def test_a_larger_unit_where_there_are_more_than_six_digits(unit, longest, expected):
    assert readable_unit(unit, longest) == expected


def test_iterations_stay_and_times_change(refresh):
    found = in_unit(refresh, refresh.time_unit, "ms")
    assert (found.value, found.bound) == (refresh.value, refresh.bound)
    assert [step.value for step in found.steps] == [
        step.value for step in refresh.steps
    ]
    assert found.bubbles_of == pytest.approx(
        [each / 1e6 for each in refresh.bubbles_of]
    )
    assert found.makespan == pytest.approx(refresh.makespan / 1e6)
    assert found.time_unit == "ms"
    pairs = zip(found.heuristics, refresh.heuristics, strict=True)
    assert all(new.value == old.value for new, old in pairs)


def test_what_breaks_ties_is_a_time(refresh):
    tie = TieBreakEntry(name=TieBreak.STALENESS, value=3_000_000, bound=2_000_000)
    found = in_unit(
        refresh.model_copy(update={"tie_break": tie}), refresh.time_unit, "ms"
    ).tie_break
    assert (found.name, found.value, found.bound) == (TieBreak.STALENESS, 3, 2)


def test_reasons_are_told_in_the_unit_too(refresh):
    old, new = (
        next(entry.reason for entry in result.heuristics if entry.name == "pipefisher")
        for result in (refresh, in_unit(refresh, refresh.time_unit, "ms"))
    )
    assert "ends at 623255093 ns" in old
    assert "starts at 0 ms" in new
    assert "ends at 623.255 ms" in new


def test_times_of_pipelines_change_everywhere():
    result = ppsolve.optimize(
        pipeline(memory={"capacity": 2, "activation": 1}), time_limit=0
    )
    found = in_unit(result, result.time_unit, "ms")
    assert (found.value, found.bound) == (result.value / 1000, result.bound / 1000)
    assert [b.value for b in found.bounds] == [b.value / 1000 for b in result.bounds]
    assert [e.value for e in found.heuristics if e.value] == [
        e.value / 1000 for e in result.heuristics if e.value
    ]
    assert (found.gap, found.peak_memory) == (result.gap, result.peak_memory)
    assert found.schedule is result.schedule
    assert in_unit(result, result.time_unit, "us") is result


def test_schedules_of_a_page_share_a_unit():
    times = {"forward": 10**6, "backward": 2 * 10**6}
    long = shown_of(pipeline(times=times), "gpipe")
    short = shown_of(pipeline(time_unit="ms"), "gpipe")
    found = in_one_unit([long, short])
    assert [each.result.time_unit for each in found] == ["ms", "ms"]
    assert [each.length for each in found] == [12_000, 120]
    assert [each.bound for each in found] == [10_800, 108]


def test_a_page_of_a_refresh_has_no_nanoseconds(refresh):
    from ppsolve.solver.views.page.document import page

    data = json.loads(refresh.model_dump_json())
    text = page(read_shown(data, "refresh.json"))
    assert "bubbles left (ms)" in text
    assert "Idle time in ms" in text
    assert '"unit":"ms"' in text
    assert " ns" not in text


def test_a_name_that_is_a_unit_stays_a_name():
    result = ppsolve.optimize(pipeline("us"), time_limit=0)
    assert in_unit(result, result.time_unit, "ms").instance == "us"


def test_memory_is_told_in_its_declared_unit():
    """GPipe holds eight activations of 20 GB, two fit; with modes the pools are others."""
    memory = {"unit": "GB", "capacity": 45, "activation": "20GB"}
    modes = {"modes": [{"name": "full", "time": 10, "held": 2}], "decide": "stage"}
    offload = {
        "amount": 10,
        "out": 1,
        "back": 1,
        "host_capacity": "1TB",
        "decide": "stage",
    }
    for more in ({}, {"recompute": modes}, {"offload": offload}):
        instance = ppsolve.PipelineInstance(
            num_devices=2,
            num_microbatches=8,
            times={"forward": 1, "backward": 2},
            memory=memory | more,
        )
        result = ppsolve.optimize(instance, time_limit=1)
        if not more:
            gpipe = next(entry for entry in result.heuristics if entry.name == "gpipe")
            assert "device 0 holds 160 of 45 GB at" in gpipe.reason
            assert (
                drawing_of(instance.kind)
                .reason(gpipe, verbose=False)
                .endswith(" of 45 GB")
            )
        (shown, *_) = read_shown(json.loads(result.model_dump_json()), "result.json")
        told = [row[2] for row in peaks(shown)]
        assert {"45 GB"} <= {*told} <= {"45 GB", "1,000 GB"}
