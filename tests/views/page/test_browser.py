"""Pages in headless Chromium: everything that can be done with them, at every size of schedule."""

from __future__ import annotations

import json
import os
import re

import numpy as np
import pytest

from ppsolve.solver.api.kinds import lower, parse_instance
from ppsolve.solver.structure.dag import order_graph
from ppsolve.solver.views.page.document import page
from ppsolve.solver.views.page.schedules import PageSchedule
from tests.paths import DATA
from tests.small import at, number
from tests.views.page.cases import pipeline, result_of, shipped, shown_of

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
pytest.importorskip("selenium", reason="needs the extra `browser`")

PICTURES = DATA / "page"
KEEP = "PPSOLVE_KEEP_PICTURES"
"""Variable of the environment: write the kept pictures anew instead of comparing with them."""

MOST_APART = 0.07
"""Share of pixels that may differ. Three other fonts moved 0.042 to 0.052 of them; one device drawn
without its ops is 0.089, no amounts of memory 0.19, all bars of one colour 0.23."""

LARGE = {
    "4x8": ("uniform/uniform-4x8-1p", "zb-h1"),
    "16x48": ("memory_curve/curve-16x48-v-1.5p", "list-tail"),
    "32x256": ("uniform/uniform-32x256-1p", "zb-h1"),
}
MORE = {
    "8x16": ("uniform/uniform-8x16-1p", "zb-h1"),
    "interleaved": ("virtual_stages/interleaved-4x8-split", "list-tail"),
    "slices": ("slices/llama-8b-32k-4x2", "list-tail"),
    "infeasible": ("memory_scan/scan-4x8-6", "zb-h2"),
    "kfac": ("kfac/free/bert-4x8", "list-tail"),
    "overlap": ("overlap/tensor-parallel-6l", "original"),
}
LANE, STRIP, FIRST_LANE = 22, 15, 11


def free_ops():
    """Return ops of three resources, the later ones first, a point, and ops without resources."""
    rows = [
        ("late", 3, ["device 0"], 4), ("early", 2, ["device 0"], 1), ("point", 0, ["device 0"], 3),
        ("other", 2, ["device 1"], 0), ("sent", 1, ["link 0"], 2),
        ("r", 1, [], 2), ("q", 2, [], 1), ("p", 2, [], 0),
    ]  # fmt: skip
    names = ("id", "duration", "resources", "start")
    instance = parse_instance(
        {
            "schema": 1,
            "kind": "graph",
            "resources": ["device 1", "device 0", "link 0", "idle 2"],
            "ops": [dict(zip(names, row, strict=True)) for row in rows],
            "precedences": [{"before": "other", "after": "late", "lag": 2}],
        }
    )
    schedule = at(lower(instance), *(row[3] for row in rows))
    return PageSchedule("hand", instance, result_of(instance, schedule), schedule)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Write each page once."""
    folder = tmp_path_factory.mktemp("pages")
    for name, (instance, heuristic) in {**LARGE, **MORE}.items():
        (folder / f"{name}.html").write_text(page([shipped(instance, heuristic)]))
    two = [shipped("uniform/uniform-4x8-1p", name) for name in ("zb-h1", "1f1b")]
    (folder / "two.html").write_text(page(two))
    hostile = pipeline("</script><b>", memory={"capacity": 2, "activation": 1})
    slow = pipeline(times={"forward": 10**9, "backward": 2 * 10**9}, time_unit="clocks")
    (folder / "clocks.html").write_text(page([shown_of(slow, "1f1b")]))
    (folder / "graph.html").write_text(page([free_ops()]))
    (folder / "hostile.html").write_text(page([shown_of(hostile, "1f1b")]))
    return folder


@pytest.fixture
def opened(browser, pages):
    """Return a function that opens a page; in the end the console must have been silent."""

    def open_page(name, *size, **mode):
        browser.open(pages / f"{name}.html", *size, **mode)
        return browser

    browser.complaints()
    yield open_page
    assert browser.complaints() == []


@pytest.mark.parametrize("name", LARGE)
def test_zoom_pan_and_fit(opened, name):
    browser = opened(name)
    whole = browser.window()
    browser.keys("+")
    first, last = browser.window()
    assert whole[0] < first < last < whole[1]
    assert (last - first) * 1.4 == pytest.approx(whole[1] - whole[0])
    browser.keys("\ue014")  # arrow to the right
    assert browser.window()[0] > first
    browser.click("[data-do=out]")
    browser.keys("0")
    assert browser.window() == pytest.approx(whole)
    middle = browser.x_of((whole[0] + whole[1]) / 4)
    browser.mouse("mouseWheel", middle, 5, deltaX=0, deltaY=-120, modifiers=2)
    first, last = browser.window()
    assert last - first < whole[1] - whole[0]
    assert browser.x_of((whole[0] + whole[1]) / 4) == pytest.approx(middle)


@pytest.mark.parametrize("name", LARGE)
def test_click_traces_and_escape_lets_go(opened, name):
    browser = opened(name)
    start = browser.x_of(0)
    for _ in range(2):
        browser.mouse("mouseWheel", start, 5, deltaX=0, deltaY=-400, modifiers=2)
    browser.press(start + 3, FIRST_LANE)
    assert browser.known("chosen") == "F0.0"
    assert browser.find("#facts b").text == "F0.0"
    assert browser.known("chain") == "1"
    assert int(browser.known("moved")) > 10
    browser.keys("n")
    assert browser.known("chosen") == "F0.1"
    browser.keys("c")
    assert browser.known("chosen") == "F0.0"
    browser.keys("\ue00c")  # escape
    assert browser.known("chosen") == ""


def test_every_key_does_what_the_help_says(opened):
    browser = opened("4x8")
    whole = browser.window()
    browser.keys("=")
    closer = browser.window()
    assert closer[1] - closer[0] < whole[1] - whole[0]
    browser.keys("\ue012")  # arrow to the left
    assert browser.window()[0] < closer[0]
    browser.keys("-")
    assert browser.window() == pytest.approx(whole)
    browser.keys("+f")
    assert browser.window() == pytest.approx(whole)
    browser.keys("nnp")
    assert browser.known("chosen") == "F0.0"
    browser.keys("p")  # there is none before it
    assert browser.known("chosen") == "F0.0"


def test_arrows_up_and_down_scroll_the_lanes(opened):
    browser = opened("32x256", 1000, 600)
    top = "return document.getElementById('scroll').scrollTop"
    browser.keys("\ue015\ue015")
    assert browser.script(top) == 4 * LANE
    browser.keys("\ue013")
    assert browser.script(top) == 2 * LANE


def test_buttons_and_chart_are_reached_by_the_keyboard(opened):
    browser = opened("4x8")
    whole = browser.window()
    active = browser.driver.switch_to.active_element
    active.send_keys("\ue004\ue004")  # tab, past "out" to "in"
    browser.driver.switch_to.active_element.send_keys("\ue007")  # enter
    browser.settle()
    assert browser.window()[1] < whole[1]
    for _ in range(20):
        browser.driver.switch_to.active_element.send_keys("\ue004")
        if browser.script("return document.activeElement.id") == "lanes":
            break
    browser.driver.switch_to.active_element.send_keys("n")
    browser.settle()
    assert browser.known("chosen") == "F0.0"


def test_wheel_alone_scrolls_the_page_and_shift_moves(opened):
    browser = opened("4x8")
    browser.keys("+++")
    before = browser.window()
    browser.mouse("mouseWheel", 500, FIRST_LANE, deltaX=0, deltaY=120)
    assert browser.window() == before
    browser.mouse("mouseWheel", 500, FIRST_LANE, deltaX=0, deltaY=120, modifiers=8)
    assert browser.window()[0] > before[0]
    browser.mouse("mouseWheel", 500, FIRST_LANE, deltaX=0, deltaY=120, modifiers=2)
    first, last = browser.window()
    assert last - first > before[1] - before[0]


@pytest.mark.parametrize(
    ("name", "width", "form"),
    [
        ("4x8", 1400, "0"),  # letter and micro-batch
        ("4x8", 500, "0"),
        ("4x8", 390, "1"),  # the micro-batch alone
        ("8x16", 1400, "0"),
        ("8x16", 800, "1"),  # numbers of two digits, condensed
        ("interleaved", 1400, "0"),  # with the stage
    ],
)
def test_bars_say_their_micro_batch_at_first_sight(opened, name, width, form):
    browser = opened(name, width)
    assert browser.known("labels") == browser.known("bars") != "0"
    assert browser.known("form") == form


@pytest.mark.parametrize("width", [500, 1400])
@pytest.mark.parametrize("name", [*LARGE, *MORE, "clocks"])
def test_ticks_of_the_axis_are_whole_and_apart(opened, name, width):
    browser = opened(name, width)
    for _ in range(6):
        spans = json.loads(browser.known("ticks"))
        edges = [edge for span in spans for edge in span]
        assert edges
        assert edges == sorted(edges)
        assert edges[0] >= 0
        assert edges[-1] <= browser.script(
            "return document.getElementById('lanes').clientWidth"
        )
        browser.keys("+++++++\ue014")


@pytest.mark.parametrize("width", [500, 1400])
def test_a_pool_that_holds_too_much_says_infeasible(opened, width):
    browser = opened("infeasible", width)
    browser.mouse("mouseMoved", 5, LANE + 10)
    assert browser.find("#tip").text == "7 of 6 infeasible"
    assert float(browser.known("gutter")) >= 90
    assert "capacity, exceeded: infeasible" in browser.find("#legend").text


def test_chain_goes_back_to_the_start(opened):
    browser = opened("4x8")
    browser.keys("n" * 5)
    assert (browser.known("chosen"), browser.known("chain")) == ("I0.0", "8")
    assert "data of I1.0" in browser.find("#facts").text


def test_lanes_stand_by_device_and_ops_by_start(opened):
    browser = opened("graph")
    labels = []
    for row in range(5):
        browser.mouse("mouseMoved", 5, row * LANE + FIRST_LANE)
        labels.append(browser.find("#tip").text)
    assert labels == ["device 0", "link 0", "device 1", "no resource", "no resource"]
    chosen = []
    for row in (0, 3, 4):
        for time in (0.5, 1.5, 2.5, 3, 6.5):
            browser.press(browser.x_of(time), row * LANE + FIRST_LANE)
            chosen.append(browser.known("chosen"))
    assert chosen == [
        *("", "early", "early", "point", "late"),
        *("p", "p", "r", "r", ""),
        *("", "q", "q", "q", ""),
    ]
    browser.press(browser.x_of(1.5), FIRST_LANE)
    browser.keys("n")
    assert browser.known("chosen") == "late"
    assert "needs\nother" in browser.find("#facts").text
    assert "waited for\ndata of other" in browser.find("#facts").text
    browser.press(browser.x_of(1), 2 * LANE + FIRST_LANE)
    assert (browser.known("chosen"), browser.known("moved")) == ("other", "1")


def test_an_op_names_all_that_it_needs(opened):
    problem = shipped(*LARGE["4x8"]).schedule.problem
    op = number(problem, "I0.0")
    wanted = set(problem.op_names(problem.before[problem.after == op]))
    browser = opened("4x8")
    browser.keys("n" * 5)
    assert browser.known("chosen") == "I0.0"
    found = dict(re.findall(r"(.+)\n(.+)", browser.find("#facts dl").text))
    assert set(found["needs"].split(", ")) == wanted > set()


def test_what_would_move_follows_all_that_starts_without_delay(opened):
    schedule = shipped(*LARGE["4x8"]).schedule
    graph = order_graph(schedule)
    tight = schedule.start[graph.before] + graph.delay == schedule.start[graph.after]
    moved = {number(schedule.problem, "F2.0")}
    for _ in range(schedule.problem.num_ops):
        moved |= set(graph.after[tight & np.isin(graph.before, list(moved))].tolist())
    browser = opened("4x8")
    browser.press(browser.x_of(250), 2 * (LANE + STRIP) + FIRST_LANE)
    assert browser.known("chosen") == "F2.0"
    assert int(browser.known("moved")) == len(moved) - 1 > 10


def test_hover_says_what_is_known(opened):
    browser = opened("4x8")
    browser.mouse("mouseMoved", browser.x_of(50), FIRST_LANE)
    tip = browser.find("#tip")
    assert tip.is_displayed()
    for words in (
        "F0.0",
        "F forward",
        "device 0",
        "0 us to 100 us",
        "starts at time 0",
    ):
        assert words in tip.text
    browser.mouse("mouseMoved", browser.x_of(50), LANE + 10)
    assert "capacity" in tip.text
    browser.mouse("mouseMoved", browser.x_of(600), FIRST_LANE)
    assert not tip.is_displayed()


def test_drag_moves_and_chooses_nothing(opened):
    browser = opened("4x8")
    browser.keys("+++")
    before = browser.window()
    browser.mouse("mousePressed", 500, FIRST_LANE, button="left", clickCount=1)
    browser.mouse("mouseMoved", 400, FIRST_LANE, button="left", buttons=1)
    browser.mouse("mouseReleased", 400, FIRST_LANE, button="left", clickCount=1)
    assert browser.window()[0] > before[0]
    assert browser.known("chosen") == ""


def test_two_fingers_zoom(opened):
    browser = opened("4x8", 390)
    first, last = browser.window()
    for kind, places in (
        ("touchStart", [(150, 8), (250, 8)]),
        ("touchMove", [(100, 8), (300, 8)]),
        ("touchEnd", []),
    ):
        browser.touch(kind, places)
    begin, end = browser.window()
    assert (end - begin) * 2 == pytest.approx(last - first)
    assert browser.known("chosen") == ""
    browser.touch("touchStart", [(70, 8)])
    browser.touch("touchEnd", [])
    assert browser.known("chosen") != ""


def test_filters_hide_lanes_and_say_what_is_no_list(opened):
    browser = opened("4x8")
    height = "return document.getElementById('tall').offsetHeight"
    whole = browser.script(height)
    field = browser.find("[data-only=device]")
    field.send_keys("1-2")
    browser.settle()
    assert browser.script(height) < 0.6 * whole
    field.send_keys(",x")
    assert field.get_attribute("aria-invalid") == "true"
    field.clear()
    field.send_keys("9")
    browser.settle()
    assert browser.script(height) < 0.1 * whole


@pytest.mark.parametrize("switch", ["critical", "slack", "memory", "links", "overlay"])
def test_every_view_changes_the_picture(opened, switch):
    browser = opened("two")
    before = browser.picture("#lanes")
    browser.click(f"[data-show={switch}]")
    assert browser.picture("#lanes") != before
    browser.click(f"[data-show={switch}]")
    assert browser.picture("#lanes") == before


@pytest.mark.parametrize("width", [390, 1000, 1800])
@pytest.mark.parametrize("name", [*LARGE, *MORE, "two"])
def test_no_page_is_wider_than_its_window(opened, name, width):
    browser = opened(name, width)
    assert browser.script("return document.documentElement.scrollWidth") <= width


def test_print_shows_all_lanes_and_comes_back(opened):
    browser = opened("two", dark=True)
    before = browser.picture("#lanes")
    assert browser.printed().startswith(b"%PDF")
    browser.settle()
    assert browser.picture("#lanes") == before


def test_a_hostile_name_does_no_harm(opened):
    browser = opened("hostile")
    assert browser.find("h1").text.startswith("</script><b>: 2 devices")
    assert browser.script("return document.querySelectorAll('b').length") == 0
    browser.keys("n")
    assert browser.known("chosen") == "F0.0"


def test_tables_are_there_without_a_script(browser, pages):
    browser.driver.execute_cdp_cmd(
        "Emulation.setScriptExecutionDisabled", {"value": True}
    )
    try:
        browser.driver.get((pages / "two.html").as_uri())
        assert "Schedules on this page" in browser.find("main").text
        assert "The chart needs a script" in browser.find("main").text
    finally:
        browser.driver.execute_cdp_cmd(
            "Emulation.setScriptExecutionDisabled", {"value": False}
        )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pictures_look_as_they_did(browser, pages, dark):
    browser.open(pages / "4x8.html", 600, dark=dark)
    browser.keys("n" * 5)
    found = browser.picture("#lanes")
    kept = PICTURES / f"4x8-{'dark' if dark else 'light'}.png"
    if os.environ.get(KEEP):
        kept.write_bytes(found)
    assert browser.share_apart(found, kept.read_bytes()) <= MOST_APART
