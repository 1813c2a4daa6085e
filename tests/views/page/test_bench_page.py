"""The page of a benchmark report in headless Chromium: nothing cut, tables that can be sorted."""

from __future__ import annotations

import pytest

from ppsolve.solver.studies.bench.report.report import bench_report
from ppsolve.solver.views.bench.outputs import html_report
from ppsolve.solver.views.bench.pictures import draw_pictures
from tests.studies.bench.results import heuristic, results, unproved

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
pytest.importorskip("selenium", reason="needs the extra `browser`")

WIDE = "an-instance-with-a-name-of-some-length"
CELLS = """
return [...document.querySelectorAll('h1, td.long')].filter((cell) =>
  cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent);
"""
COLUMN = """
const [title, place] = arguments;
const heads = [...document.querySelectorAll('section')].find((one) =>
  one.querySelector('h2')?.textContent === title);
return [...heads.querySelectorAll('tbody tr')].map((row) => row.cells[place].textContent);
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    names = ("zb-h1", "1f1b", "gpipe")
    records = [
        unproved(
            key=f"k{number}",
            instance=f"{WIDE}-{number}",
            heuristics=[
                heuristic(name, 200 + 10 * n + number) for n, name in enumerate(names)
            ],
        )
        for number in range(3)
    ]
    report = bench_report(results(*records), "r.jsonl")
    path = tmp_path_factory.mktemp("page") / "report.html"
    pictures = {picture.name: picture for picture in draw_pictures(report)}
    path.write_text(html_report(report, pictures), encoding="utf-8")
    return path


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [500, 1000, 1400])
def test_no_name_is_cut(browser, page, width, dark):
    browser.open(page, width, dark=dark)
    assert browser.script(CELLS) == []
    assert browser.script("return document.documentElement.scrollWidth") <= width
    assert f"{WIDE}-2" in browser.script(COLUMN, "Methods", 9)
    assert browser.complaints() == []


def test_the_table_of_methods_fits_a_usual_window(browser, page):
    browser.open(page, 1400)
    boxes = (
        "return [...document.querySelectorAll('.wide')]"
        ".map((x) => x.scrollWidth - x.clientWidth)"
    )
    assert max(browser.script(boxes)) <= 0


def test_a_heading_sorts_its_table_by_mouse_and_keyboard(browser, page):
    browser.open(page, 1400)
    mean = "section:nth-of-type(2) th:nth-child(6) span"
    assert browser.find(mean).text == "mean %"
    browser.click(mean)
    up = browser.script(COLUMN, "Methods", 5)
    assert up == sorted(up, key=float)
    browser.find(mean).send_keys("\n")
    assert browser.script(COLUMN, "Methods", 5) == up[::-1]


def test_pictures_are_dark_on_dark_pages(browser, page):
    look = "return getComputedStyle(document.querySelector('img')).filter"
    browser.open(page)
    assert browser.script(look) == "none"
    browser.open(page, dark=True)
    assert "invert" in browser.script(look)
