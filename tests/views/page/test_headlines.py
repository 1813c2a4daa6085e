"""The figures above the chart, titles, and the word beside whatever is infeasible."""

import json
import re

import pytest

import ppsolve
from ppsolve.solver.views.page.document import page
from ppsolve.solver.views.page.schedules import read_shown
from ppsolve.solver.views.page.tables import headlines, memory_table, overview
from tests.paths import ROOT
from tests.views.page.cases import pipeline


def shown_with(instance, *heuristics):
    """Return the best schedule without a search, and those of some heuristics."""
    result = ppsolve.optimize(instance, time_limit=0)
    return read_shown(json.loads(result.model_dump_json()), "result.json", heuristics)


def loaded(name):
    return ppsolve.load_instance(ROOT / "instances" / f"{name}.json")


@pytest.fixture(scope="module")
def scan():
    return shown_with(loaded("memory_scan/scan-4x8-6"), "zb-h2", "1f1b")


def words(text):
    """Return the lines of a list of figures: name, figure, note."""
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd><dd>(.*?)</dd>", text)
    return {name: (figure, note) for name, figure, note in found}


def test_a_reader_sees_value_proof_best_heuristic_and_memory_first(scan):
    found = words(headlines(scan[0]))
    assert found["status"] == ("OPTIMAL", "")
    assert found["makespan"][0] == found["lower bound"][0] == "723,447 us"
    assert found["gap"] == ("0.00 %", "")
    figure, note = found["best published"]
    assert figure == "756,741 us"
    assert note.endswith(", 4.60 % over best; 33,294 us saved")
    assert found["peak of memory"] == ("6 of 6", "on device 0")
    text = page(scan)
    assert text.index("33,294 us saved") < text.index('<section id="chart"')


def test_our_own_rules_are_not_called_published(scan):
    assert scan[0].result.best_by.startswith("list-")
    assert "list-" not in words(headlines(scan[0]))["best published"][1]


def test_a_published_schedule_that_is_best_saves_nothing():
    found = words(headlines(shown_with(pipeline())[0]))
    assert found["best published"][1].endswith(", as good")


def test_where_no_published_schedule_fits_there_is_none():
    tight = pipeline(num_devices=4, memory={"capacity": 1, "activation": 1})
    figure, note = words(headlines(shown_with(tight)[0]))["best published"]
    assert figure == "none"
    assert re.fullmatch(r"\d infeasible", note)


def test_infeasible_stands_beside_what_is(scan):
    names = [row[0] for row in overview(scan).rows]
    assert [name.endswith("zb-h2 (infeasible)") for name in names] == [
        False,
        True,
        False,
    ]
    assert [row[4] for row in memory_table(scan[1]).rows] == ["infeasible", "", "", ""]
    assert {row[4] for row in memory_table(scan[0]).rows} == {""}
    text = page(scan)
    assert ">723,447</td><td>infeasible</td>" in re.sub(
        r" data-order=\S+?(?=>)", "", text
    )
    assert (
        "zb-h2 (infeasible)"
        in json.loads(re.findall(r'id="data">(.*?)</script>', text)[0])["titles"][1]
    )


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("uniform/uniform-4x8-1p", "4 devices x 8 micro-batches, linear"),
        (
            "virtual_stages/interleaved-4x8-split",
            "4 devices x 8 micro-batches, interleaved, 2 stages per device",
        ),
        (
            "virtual_stages/explicit-3x6",
            "3 devices x 6 micro-batches, explicit placement of 4 stages",
        ),
        ("kfac/free/bert-4x8", "K-FAC, 4 devices x 8 micro-batches, linear"),
        ("kfac/measured/bert-base-1f1b-4x4", "K-FAC, 4 devices as measured"),
    ],
)
def test_the_title_says_what_it_is(name, title):
    shown = shown_with(loaded(name))
    heading = f"{shown[0].instance.name}: {title}"
    text = page(shown)
    assert f"<title>{heading}</title>" in text
    assert f"<h1>{heading}</h1>" in text
    assert f"<h2>{heading}</h2>" not in text


def test_replicas_are_named_and_other_kinds_have_their_name():
    copies = pipeline("copies", num_microbatches=4, replicas={"count": 2})
    assert (
        shown_with(copies)[0].shape
        == "copies: 2 replicas x 2 devices x 4 micro-batches, linear"
    )
    assert (
        shown_with(loaded("overlap/tensor-parallel-6l"))[0].shape
        == "tensor-parallel-6l"
    )


def test_several_results_have_a_heading_each():
    text = page([*shown_with(pipeline("one")), *shown_with(pipeline("two"))])
    assert "<h1>one, two</h1>" in text
    assert "<h2>one: 2 devices x 3 micro-batches, linear</h2>" in text
    assert text.count('<dl class="headlines">') == 2


def test_bounds_and_steps_are_tables(scan):
    text = page(scan)
    assert "<caption>Bounds</caption>" in text
    assert "<caption>Steps</caption>" in text
    assert "<pre" not in text
