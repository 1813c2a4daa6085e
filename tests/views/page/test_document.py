"""A page is one file: it loads nothing, escapes everything, and its tables need no script."""

import json
import re
from html.parser import HTMLParser

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.views.page.document import page
from ppsolve.solver.views.page.tables import embedded
from tests.views.page.cases import pipeline, shipped, shown_of

HOSTILE = "</script><b>&\u2028<!--<script>"


class Elements(HTMLParser):
    """Collects elements, links and the embedded data of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.data, self.inside = [], [], "", ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.inside = dict(attrs).get("id", "")

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, text):
        if self.inside == "data":
            self.data += text


def test_json_holds_no_markup():
    text = embedded({HOSTILE: [HOSTILE]})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {HOSTILE: [HOSTILE]}


def test_a_hostile_name_stays_a_name():
    found = Elements(page([shown_of(pipeline(HOSTILE), "gpipe")]))
    calm = Elements(page([shown_of(pipeline("calm"), "gpipe")]))
    assert found.tags == calm.tags
    assert "b" not in found.tags
    assert json.loads(found.data)["titles"][0].startswith("</script><b>&")


def test_nothing_is_loaded_from_anywhere():
    text = page([shown_of(pipeline(), "gpipe")])
    names = {name for name, _ in Elements(text).attributes}
    assert not names & {"src", "href", "srcset", "action"}
    assert not re.findall(r"https?://|@import|url\(", text)
    assert "default-src 'none'" in text


def test_tables_hold_the_figures():
    text = page(
        [shipped("p2p_heavy/nic-40-4x8"), shipped("p2p_heavy/nic-40-4x8", "1f1b")]
    )
    words = re.sub(r"<[^>]+>", " ", text.split("</script>")[1])
    heads = ("Schedules on this page", "Idle time in us", "data on its way", "Memory")
    assert [
        head for head in (*heads, "nic-40-4x8, 1f1b", "33.83 %") if head not in words
    ] == []


def test_schedules_of_units_without_a_factor_are_refused():
    shown = [shown_of(pipeline(time_unit=unit), "gpipe") for unit in ("us", "clocks")]
    with pytest.raises(
        InputError, match='expected times in "us" as in the first result'
    ):
        page(shown)


def test_a_large_schedule_stays_below_three_megabytes():
    text = page([shipped("uniform/uniform-32x256-1p", "zb-h1")])
    assert 1_000_000 < len(text.encode()) < 3_000_000
