"""Somebody who uses the page: moves sliders, reads what it says, follows links."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, quote

from tests.views.page.browser import Browser

SECONDS = 60
"""After which a page that does not come to rest has a fault."""

MOVE = """
const [name, value] = arguments;
const control = document.getElementById(name);
if (control.type === "checkbox") control.checked = value;
else control.value = value;
control.dispatchEvent(new Event(control.type === "range" ? "input" : "change", {bubbles: true}));
"""

AT_REST = """
return document.documentElement.dataset.started === "yes"
  && document.getElementById("table").dataset.ready === "yes"
  && document.getElementById("curves").dataset.ready === "yes";
"""

UNNAMED = """
return [...document.querySelectorAll("input, select, button, [role=slider], canvas, svg")]
  .filter((one) => one.getClientRects().length && !one.closest("[hidden]"))
  .filter((one) => !(one.getAttribute("aria-label") || one.title || one.textContent.trim()
    || [...(one.labels ?? [])].some((label) => label.textContent.trim())
    || one.closest("#axis")))
  .map((one) => one.outerHTML.slice(0, 200));
"""


class Visitor:
    """A browser on the page of a service."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.browser, self.url = browser, url

    def open(self, fragment: str = "", width: int = 1280, **options: Any) -> None:
        self.browser.visit("about:blank")
        self.browser.visit(f"{self.url}/{fragment}", width, **options)
        self.rest()

    def open_instance(self, instance: dict[str, Any], *shown: str) -> None:
        names = ",".join(shown or ("1f1b", "zb-h1"))
        self.open(f"#show={names}&pipeline={quote(json.dumps(instance))}")

    def until(self, holds: Callable[[], Any]) -> Any:
        """Return what is true at last; fails where nothing is."""
        deadline = time.monotonic() + SECONDS
        while not (outcome := holds()):
            assert time.monotonic() < deadline, self.text("#message")
            time.sleep(0.02)
        return outcome

    def rest(self) -> None:
        """Wait until pictures, table, curves and address are those of the pipeline."""
        # The curves begin to wait within the event that changes the pipeline.
        self.until(lambda: self.browser.script(AT_REST))
        self.until(lambda: self.browser.script("return location.hash.length > 1"))
        time.sleep(0.25)

    def move(self, name: str, value: Any) -> None:
        """Set a slider, a field, a box or a list, and wait for what it changes."""
        self.browser.script(MOVE, name, value)
        self.rest()

    def text(self, query: str) -> str:
        return str(
            self.browser.script(
                "return document.querySelector(arguments[0])?.textContent ?? ''", query
            )
        )

    def choose(self, name: str, value: str) -> None:
        from selenium.webdriver.support.ui import Select

        Select(self.browser.find(f"#{name}")).select_by_value(value)

    @property
    def hash(self) -> str:
        return str(self.browser.script("return location.hash"))

    @property
    def instance(self) -> dict[str, Any]:
        """The pipeline in the address."""
        document: dict[str, Any] = json.loads(
            parse_qs(self.hash.removeprefix("#"))["pipeline"][0]
        )
        return document

    def headline(self) -> dict[str, str]:
        """What stands above the chart, by its names."""
        rows: list[list[str]] = self.browser.script(
            "return [...document.querySelectorAll('#headline div')].map((one) => "
            "[one.querySelector('dt').textContent, one.querySelector('b').textContent])"
        )
        return dict(map(tuple, rows))  # type: ignore[arg-type]

    def table(self) -> dict[str, list[str]]:
        """The cells behind each name in the table of schedules."""
        rows: list[list[str]] = self.browser.script(
            "return [...document.querySelectorAll('#table tbody tr')].map((row) => "
            "[...row.cells].map((cell) => cell.textContent))"
        )
        return {name: cells for name, *cells in rows}

    def titles(self) -> list[str]:
        """The schedules that the chart shows."""
        titles: list[str] = self.browser.driver.execute_async_script(
            "const done = arguments[0];"
            "import('/chart/data.js').then((data) => done([...data.chartTexts.titles]))"
        )
        return titles

    def unnamed(self) -> list[str]:
        """Controls and pictures without a name that is read out."""
        unnamed: list[str] = self.browser.script(UNNAMED)
        return unnamed
