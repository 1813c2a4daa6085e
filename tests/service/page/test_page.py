"""The page of the service in headless Chromium: every control says what the library says."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("selenium", reason="needs the extra `browser`")
pytest.importorskip("fastapi", reason="needs the extra `serve`")

import ppsolve
from tests.paths import ROOT
from tests.service.page.visitor import Visitor
from tests.views.page.browser import Browser

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

HOSTILE = "</script><img src=x onerror=document.title='bad'> ../../\u202eexe"

ABSENT = "\u2013"
"""What the page says instead of a figure that there is not."""

LARGE = {
    "kind": "pipeline",
    "name": "large",
    "num_devices": 8,
    "num_microbatches": 64,
    "times": {"forward": 100, "backward_input": 110, "backward_weight": 80},
    "p2p": {"latency": 5},
    "memory": {"capacity": "1p", "activation": 1},
}


def number(text: str) -> float:
    return float(text.split()[0].replace(",", ""))


def agrees(visitor: Visitor) -> None:
    """Fail where the page says other figures than the library."""
    instance = ppsolve.parse_instance(visitor.instance)
    answer = ppsolve.quick(instance)
    headline, table = visitor.headline(), visitor.table()
    assert number(headline["lower bound"]) == pytest.approx(answer.bound, rel=1e-5)
    for name, makespan in answer.published.items():
        cells = table[name]
        assert (cells[1] == "does not fit") == (makespan is None), name
        if makespan is not None:
            assert number(cells[0]) == pytest.approx(makespan, rel=1e-5), name
    best = min(number(c[0]) for c in table.values() if c[1] != "does not fit")
    assert number(headline["best"]) == pytest.approx(best, rel=1e-5)


def test_the_first_page_shows_two_schedules_and_what_the_library_says(visitor):
    agrees(visitor)
    assert visitor.titles() == ["1f1b", "zb-h1"]
    assert visitor.browser.script(
        "return document.getElementById('lanes').dataset.bars"
    ) == str(2 * 4 * 8 * 3)
    assert visitor.unnamed() == []


CONTROLS = [
    ("devices", 6, ["num_devices"], 6),
    ("microbatches", 13, ["num_microbatches"], 13),
    ("placement", "vshape", ["placement"], "vshape"),
    ("placement", "interleaved", ["placement"], "interleaved"),
    ("chunks", 3, ["stages_per_device"], 3),
    ("placement", "linear", ["placement"], "linear"),
    ("latency", 40, ["p2p", "latency"], 40),
    ("capacity", 1.75, ["memory", "capacity"], "1.75p"),
    ("released", 0.5, ["memory", "released_by_backward_weight"], 0.5),
    ("limited", False, ["memory"], None),
]


def test_each_control_changes_the_pipeline(visitor):
    for control, value, path, written in CONTROLS:
        visitor.move(control, value)
        part = visitor.instance
        for key in path:
            part = part.get(key)
        assert part == written, control
        agrees(visitor)


def test_backwards_are_split_and_joined_again(visitor):
    visitor.move("split", False)
    assert visitor.instance["times"] == {"forward": 100, "backward": 200}
    agrees(visitor)
    visitor.move("split", True)
    assert visitor.instance["times"]["backward_input"] == 100


def test_pipes_in_both_directions_have_an_even_number_of_micro_batches(visitor):
    visitor.move("placement", "bidirectional")
    visitor.move("microbatches", 7)
    assert visitor.instance["num_microbatches"] == 8
    assert "bidirectional" not in visitor.text("#message")


def test_bars_are_dragged_moved_by_keys_and_set_together(visitor):
    browser = visitor.browser
    query = "#bars .bar-of.forward:nth-child(2)"
    box = browser.script(
        f"const b = document.querySelector('{query}').getBoundingClientRect();"
        "return [b.x + b.width / 2, b.y + 30]"
    )
    for kind, y in (("mousePressed", 0), ("mouseMoved", -20), ("mouseReleased", -20)):
        browser.driver.execute_cdp_cmd(
            "Input.dispatchMouseEvent",
            {
                "type": kind,
                "x": box[0],
                "y": box[1] + y,
                "button": "left",
                "buttons": 1,
                "clickCount": 1,
            },
        )
    visitor.rest()
    times = visitor.instance["times"]["forward"]
    assert times[1] > 120
    assert [times[0], *times[2:]] == [100, 100, 100]
    agrees(visitor)

    bar = browser.find(query)
    assert bar.get_attribute("aria-valuenow") == str(times[1])
    bar.send_keys("\ue015")  # down
    visitor.rest()
    assert visitor.instance["times"]["forward"][1] < times[1]
    browser.script("arguments[0].value = '90'", field := browser.find("#bars input"))
    browser.script("arguments[0].dispatchEvent(new Event('change'))", field)
    visitor.rest()
    assert visitor.instance["times"]["forward"] == 90


def test_layers_are_shared_out_and_recomputed(visitor):
    visitor.move("layers", True)
    instance = visitor.instance
    assert "times" not in instance
    assert instance["layers"]["body"]["count"] == 16
    visitor.move("recompute", True)
    assert visitor.instance["layers"]["recompute"][0]["name"] == "full"
    assert number(visitor.headline()["lower bound"]) > 0
    ppsolve.parse_instance(visitor.instance)
    visitor.move("layers", False)
    assert visitor.instance["memory"]["recompute"]["modes"][0]["name"] == "full"
    headline = visitor.headline()
    assert number(headline["lower bound"]) <= number(headline["best"])
    visitor.move("recompute", False)
    agrees(visitor)


def test_a_link_shows_the_same_pipeline_and_picture(visitor):
    visitor.move("placement", "vshape")
    visitor.move("capacity", 0.75)
    visitor.choose("first", "zbv")
    visitor.choose("second", "v-half")
    visitor.rest()
    link, instance, titles = visitor.hash, visitor.instance, visitor.titles()
    picture = visitor.browser.picture("#lanes")
    visitor.open(link)
    assert visitor.instance == instance
    assert visitor.titles() == titles == ["zbv", "v-half"]
    again = visitor.browser.picture("#lanes")
    assert visitor.browser.share_apart(picture, again) == 0


@pytest.mark.parametrize(
    "fragment",
    [
        "#pipeline=%7Bnot%20json",
        "#pipeline=[]",
        "#pipeline=%7B%22kind%22%3A%22pipeline%22%2C%22num_devices%22%3A%22many%22%7D",
        "#show=%3Cb%3E&pipeline=null&tour=x",
    ],
)
def test_an_address_that_holds_no_pipeline_is_refused_in_words(visitor, fragment):
    visitor.open(fragment)
    assert visitor.instance["num_devices"] == 4
    assert len(visitor.titles()) == 2
    visitor.browser.complaints()  # the service has refused it


def import_file(visitor: Visitor, path, words: str) -> None:
    visitor.browser.find("#file").send_keys(str(path))
    visitor.until(lambda: words in visitor.text("#message"))
    visitor.rest()


def test_a_file_with_a_hostile_name_is_text_everywhere(visitor, tmp_path):
    path = tmp_path / "<img src=x onerror=alert(1)>.json"
    path.write_text(json.dumps({**LARGE, "name": HOSTILE, "num_microbatches": 9}))
    import_file(visitor, path, "is open")
    assert visitor.instance["name"] == HOSTILE
    assert visitor.text("#message").startswith("<img src=x onerror=alert(1)>.json")
    assert visitor.browser.script("return document.images.length") == 0
    assert visitor.browser.script("return document.title") != "bad"
    agrees(visitor)
    visitor.choose("save", "instance")
    saved = visitor.until(
        lambda: visitor.browser.find("#save").get_attribute("data-saved")
    )
    assert saved == "script-img-src-x-onerror-document.title-bad-..-..-exe.json"


def test_wrong_files_change_nothing_and_say_why(visitor, tmp_path):
    before = visitor.instance
    for text, words in (
        ("{", "is no JSON file"),
        ("[1]", "no kind"),
        ('{"kind": "graph"}', '"graph"'),
        (json.dumps({**LARGE, "num_microbatches": 0}), "num_microbatches"),
        (json.dumps({**LARGE, "num_microbatches": 900_000}), "ops"),
    ):
        (tmp_path / "wrong.json").write_text(text)
        import_file(visitor, tmp_path / "wrong.json", words)
        assert visitor.instance == before
    visitor.browser.complaints()  # refusals of the service are noted there


def test_files_are_saved_as_they_are_shown(visitor, tmp_path):
    visitor.browser.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior",
        {"behavior": "allow", "downloadPath": str(tmp_path)},
    )

    def saved(choice: str, name: str) -> bytes:
        visitor.choose("save", choice)
        path = tmp_path / name
        visitor.until(lambda: path.exists() and path.stat().st_size)
        return path.read_bytes()

    assert json.loads(saved("instance", "pipeline.json")) == visitor.instance
    assert saved("picture", "pipeline.png").startswith(b"\x89PNG")
    order = saved("runtime:torch", "pipeline-zb-h1-order.csv").decode()
    entry = ppsolve.simulate(ppsolve.parse_instance(visitor.instance), "zb-h1")
    assert [line.split(",") for line in order.split()] == entry.orders
    visitor.choose("save", "result")
    visitor.until(lambda: "prove it first" in visitor.text("#message"))
    visitor.choose("save", "runtime:megatron")
    visitor.until(lambda: "1F1B" in visitor.text("#message"))
    visitor.browser.complaints()


def test_a_proof_is_drawn_and_its_schedule_kept(visitor, tmp_path):
    visitor.open("#tour=6")
    visitor.browser.click("#prove")
    visitor.until(lambda: "is optimal" in visitor.text("#proof-state"))
    visitor.rest()
    headline = visitor.headline()
    assert headline["gap"] == "0 %"
    result = ppsolve.optimize(ppsolve.parse_instance(visitor.instance), time_limit=60)
    assert number(headline["best"]) == result.value
    assert visitor.browser.script(
        "return document.querySelectorAll('#proof path').length"
    )
    visitor.browser.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior",
        {"behavior": "allow", "downloadPath": str(tmp_path)},
    )
    visitor.choose("save", "result")
    path = tmp_path / "proof.result.json"
    visitor.until(lambda: path.exists() and path.stat().st_size)
    document = json.loads(path.read_text())
    assert ppsolve.check(ppsolve.parse_instance(visitor.instance), document) == []
    assert visitor.titles() == ["1f1b", document["best_by"]]

    visitor.move("microbatches", 9)
    assert visitor.titles() == ["1f1b", "zb-h1"]
    import_file(visitor, path, "is open")
    assert visitor.headline()["gap"] == "0 %"
    assert visitor.titles() == ["1f1b", document["best_by"]]


def test_a_proof_is_stopped_and_keeps_the_best(visitor):
    # Its best bound is 11 % below its best schedule.
    text = (ROOT / "instances/memory/llama-13b-4x16-interleaved.json").read_text()
    visitor.open_instance(json.loads(text))
    visitor.browser.script("document.getElementById('seconds').value = '500'")
    visitor.browser.click("#prove")
    visitor.until(lambda: "best" in visitor.text("#proof-state"))
    visitor.browser.click("#stop")
    visitor.until(lambda: visitor.text("#proof-state").startswith("Best after"))
    visitor.rest()
    assert number(visitor.table()["proved"][0]) > 0


def test_curves_say_what_the_library_says_and_a_click_goes_there(visitor):
    rows = visitor.browser.script(
        "return [...document.querySelectorAll('#curves figure')].map((one) => "
        "[...one.querySelectorAll('tbody tr')].map((row) => "
        "[...row.cells].map((cell) => cell.textContent)))"
    )
    assert len(rows) == 3
    base = visitor.instance
    for multiple, value, bound in rows[0]:
        memory = {"capacity": f"{multiple}p", "activation": 1}
        answer = ppsolve.quick(ppsolve.parse_instance({**base, "memory": memory}))
        shown = None if value == ABSENT else number(value)
        assert shown == (answer.value and pytest.approx(answer.value, rel=1e-5))
        assert number(bound) == pytest.approx(answer.bound, rel=1e-5)
    for count, value, _ in rows[1]:
        other = {**base, "num_microbatches": int(count)}
        answer = ppsolve.quick(ppsolve.parse_instance(other))
        per_microbatch = answer.value / int(count)
        assert number(value) == pytest.approx(per_microbatch, rel=1e-5)
    visitor.browser.script(
        "document.querySelectorAll('#curves figure')[1].querySelector('rect')"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    visitor.rest()
    assert visitor.instance["num_microbatches"] == int(rows[1][0][0])


def test_the_tour_has_six_steps_and_says_the_truth(visitor):
    browser = visitor.browser
    browser.click("#tour-start")
    titles, ends = [], []
    for _ in range(6):
        visitor.rest()
        titles.append(visitor.text("#tour-title"))
        assert visitor.text("#message") == ""
        assert browser.script("return document.querySelector('.looked-at') !== null")
        table = visitor.table()
        ends.append({name: (number(c[0]), c[1], c[3]) for name, c in table.items()})
        if titles[-1] == "Memory":
            assert ends[-1]["zb-h2"][1] == "does not fit"
            visitor.move("capacity", 1.75)
            assert next(iter(visitor.table())) == "zb-h2"
        browser.click("#tour-next")
    assert titles == [
        "The bubble", "1F1B", "Zero bubble", "Memory", "Placement", "Proof",
    ]  # fmt: skip
    assert ends[1]["gpipe"][0] == ends[1]["1f1b"][0]
    assert (ends[1]["gpipe"][2], ends[1]["1f1b"][2]) == ("8", "4")
    assert ends[2]["zb-h1"][0] < ends[2]["1f1b"][0]
    assert ends[2]["zb-h1"][2] == ends[2]["1f1b"][2]
    assert browser.script("return document.getElementById('tour').hidden")
    browser.click("#tour-start")
    browser.find("#tour-title").send_keys("\ue00c")  # Escape
    assert browser.script("return document.getElementById('tour').hidden")
    visitor.open("#tour=3")
    assert visitor.text("#tour-title") == "Zero bubble"


def test_every_preset_is_a_shipped_instance_that_the_page_shows(visitor):
    presets = json.loads(
        (ROOT / "solver/service/page/presets.json").read_text(encoding="utf-8")
    )
    for index, preset in enumerate(presets):
        visitor.choose("preset", str(index))
        visitor.until(lambda preset=preset: visitor.instance == preset["instance"])
        visitor.rest()
        assert visitor.text("#message") == "", preset["title"]
        assert len(visitor.titles()) == 2, preset["title"]
        assert "lower bound" in visitor.headline()


def test_two_people_at_once_see_their_own_pipelines(visitor, service, tmp_path):
    other = Visitor(Browser(tmp_path / "profile"), service.url)
    try:
        other.open()
        for count in range(5, 17):
            visitor.browser.script(
                "const s = document.getElementById('microbatches'); s.value = arguments[0];"
                "s.dispatchEvent(new Event('input'))",
                count,
            )
            other.browser.script(
                "const s = document.getElementById('devices'); s.value = arguments[0];"
                "s.dispatchEvent(new Event('input'))",
                count % 7 + 2,
            )
        visitor.rest()
        other.rest()
        assert visitor.instance["num_microbatches"] == 16
        assert other.instance["num_devices"] == 4
        agrees(visitor)
        agrees(other)
        assert other.browser.complaints() == []
    finally:
        other.browser.driver.quit()


@pytest.mark.parametrize("is_dark", [False, True])
def test_on_500_pixels_nothing_is_cut_off(visitor, is_dark):
    visitor.open(width=500, dark=is_dark)
    wide = visitor.browser.script("return document.documentElement.scrollWidth")
    assert wide <= 500
    assert visitor.unnamed() == []
    back = visitor.browser.script(
        "return getComputedStyle(document.body).backgroundColor"
    )
    assert back == ("rgb(20, 23, 27)" if is_dark else "rgb(255, 255, 255)")


def test_keys_alone_reach_every_control(visitor):
    reached = visitor.browser.script(
        "return [...document.querySelectorAll('button, select, input, summary, canvas[tabindex]')]"
        ".filter((one) => one.getClientRects().length && one.tabIndex < 0)"
        ".map((one) => one.outerHTML.slice(0, 100))"
    )
    assert reached == []
    slider = visitor.browser.find("#microbatches")
    slider.send_keys("\ue014")  # right
    visitor.rest()
    assert visitor.instance["num_microbatches"] == 9


def test_pictures_follow_a_slider(visitor, capsys):
    """Pictures come while a slider moves; how soon is printed, not judged."""
    visitor.open_instance(LARGE)
    took = visitor.browser.driver.execute_async_script("""
        const done = arguments[0];
        const slider = document.getElementById("capacity");
        const place = document.getElementById("took");
        const took = [];
        const next = () => {
          if (took.length === 5) return done(took);
          const before = place.dataset.pictures;
          slider.value = 1 + (took.length % 8) / 8;
          slider.dispatchEvent(new Event("input"));
          const look = () => {
            if (place.dataset.pictures === before) return setTimeout(look, 5);
            took.push(Number(place.dataset.took));
            setTimeout(next, 1500);
          };
          look();
        };
        next();
    """)
    with capsys.disabled():
        print(f"\ninput to picture, 8 x 64, ms: {sorted(map(round, took))}")
    assert all(moment > 0 for moment in took)
    seen = visitor.browser.driver.execute_async_script("""
        const done = arguments[0];
        const slider = document.getElementById("capacity");
        const pictures = () => Number(document.getElementById("took").dataset.pictures);
        const before = pictures();
        let left = 50;
        const timer = setInterval(() => {
          slider.value = 1 + (left % 16) / 16;
          slider.dispatchEvent(new Event("input"));
          if (--left) return;
          clearInterval(timer);
          done(pictures() - before);
        }, 20);
    """)
    assert seen >= 2, "pictures wait for the end of a move"
    visitor.rest()
    agrees(visitor)


def test_a_service_that_has_gone_is_told(visitor, service, tmp_path):
    visitor.browser.driver.execute_cdp_cmd("Network.enable", {})
    visitor.browser.driver.execute_cdp_cmd(
        "Network.setBlockedURLs", {"urls": ["*/picture"]}
    )
    visitor.browser.script(
        "const s = document.getElementById('devices'); s.value = 5;"
        "s.dispatchEvent(new Event('input'))"
    )
    visitor.until(lambda: "does not answer" in visitor.text("#message"))
    visitor.browser.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
    visitor.move("devices", 6)
    assert visitor.text("#message") == ""
    visitor.browser.complaints()
