"""The page of a benchmark report in headless Chromium: nothing cut, tables that can be sorted."""

from __future__ import annotations

import io

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
Image = pytest.importorskip("PIL.Image")

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


OWN = "mine.py:two_ahead"
LINES = """
const [query] = arguments;
return [...document.querySelectorAll(query)].map((cell) => {
  const nodes = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), range = new Range();
  const lines = [];
  let top = null;
  for (let node = nodes.nextNode(); node; node = nodes.nextNode())
    for (let at = 0; at < node.length; at += 1) {
      range.setStart(node, at);
      range.setEnd(node, at + 1);
      const box = range.getBoundingClientRect();
      if (top === null || box.top > top + 4) lines.push("");
      top = box.top;
      lines[lines.length - 1] += node.data[at];
    }
  return lines.map((line) => line.trim());
});
"""
OVER = """
return [...document.querySelectorAll('.wide')].filter((box) =>
  box.scrollWidth > box.clientWidth).length;
"""
EDGE = """
const box = [...document.querySelectorAll('.wide')].find((one) =>
  one.scrollWidth > one.clientWidth);
box.scrollLeft = arguments[0];
const { right, top } = box.getBoundingClientRect();
return [right - 2, top + 20];
"""


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """Return a report with names of the usual length, and a heuristic of a user's own."""
    names = ("list-backward-first", OWN, "gpipe")
    entries = [heuristic(name, 200 + 10 * n) for n, name in enumerate(names)]
    records = [
        unproved(
            key=f"k{n}", instance=f"scan-4x8-{n}", family=family, heuristics=entries
        )
        for n, family in enumerate(("few_microbatches", "memory_scan"))
    ]
    path = tmp_path_factory.mktemp("page") / "usual.html"
    path.write_text(html_report(bench_report(results(*records), "r.jsonl")))
    return path


@pytest.mark.parametrize("dark", [False, True])
def test_every_column_is_seen_on_a_screen_of_1280_pixels(browser, usual, dark):
    browser.open(usual, 1280, dark=dark)
    assert browser.script(OVER) == 0
    assert [OWN] in browser.script(LINES, "td:first-child")


@pytest.mark.parametrize("dark", [False, True])
def test_a_shade_says_that_there_are_more_columns(browser, usual, dark):
    browser.open(usual, 500, 3000, dark=dark)
    assert browser.script(OVER) >= 2
    shown = []
    for scrolled in (0, 100_000):
        x, y = browser.script(EDGE, scrolled)
        browser.settle()
        image = Image.open(io.BytesIO(browser.driver.get_screenshot_as_png()))
        shown.append(sum(image.convert("RGB").getpixel((int(x), int(y)))))
    # Darker than the page in light mode and lighter in dark mode, until the last column is seen.
    assert abs(shown[0] - shown[1]) > 60
    assert (shown[0] > shown[1]) is dark


def test_names_go_on_behind_marks_only(browser, usual):
    browser.open(usual, 500)
    cells = browser.script(LINES, "td:first-child")
    assert ["mine.py:", "two_", "ahead"] in cells or ["mine.py:", "two_ahead"] in cells
    for lines in cells:
        assert all(line[-1] in "/:_-" for line in lines[:-1])


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
