"""Headless Chromium, the pages that tests open in it, and comparison of pictures."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any

BINARIES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)

COMPARE = """
const [first, second, done] = arguments;
const picture = (data) => new Promise((found) => {
  const image = new Image();
  image.onload = () => found(image);
  image.src = `data:image/png;base64,${data}`;
});
Promise.all([picture(first), picture(second)]).then((images) => {
  const [one, other] = images.map((image) => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width, image.height];
    const pen = canvas.getContext("2d");
    pen.drawImage(image, 0, 0);
    return pen.getImageData(0, 0, image.width, image.height);
  });
  if (one.width !== other.width || one.height !== other.height) return done(1);
  let apart = 0;
  for (let at = 0; at < one.data.length; at += 4) {
    const far = [0, 1, 2].some(
      (part) => Math.abs(one.data[at + part] - other.data[at + part]) > 48);
    apart += far ? 1 : 0;
  }
  done(apart / (one.width * one.height));
});
"""


class Browser:
    """A browser of its own profile, which keeps what the console says."""

    def __init__(self, profile: Path) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.options import Options
        from selenium.webdriver.chrome.service import Service

        options = Options()
        options.binary_location = next(filter(None, map(shutil.which, BINARIES)))
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))

    def open(
        self, file: Path, width: int = 1000, height: int = 900, *, dark: bool = False
    ) -> None:
        """Open a file in a window of a size, in light or dark mode."""
        self.visit(file.as_uri(), width, height, dark=dark)

    def visit(
        self, address: str, width: int = 1000, height: int = 900, *, dark: bool = False
    ) -> None:
        """Open an address in a window of a size, in light or dark mode."""
        size = {
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": width < 600,
        }
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [scheme]}
        )
        self.driver.get(address)
        self.settle()

    def settle(self) -> None:
        """Wait until the next two frames are painted."""
        self.driver.execute_async_script(
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => done()));"
        )

    def script(self, text: str, *arguments: Any) -> Any:
        return self.driver.execute_script(text, *arguments)

    def known(self, name: str) -> str:
        """Return what the chart says of itself: its window, the chosen op, the length of chains."""
        return self.script(
            f"return document.getElementById('lanes').dataset.{name} ?? ''"
        )

    def window(self) -> tuple[float, float]:
        return float(self.known("from")), float(self.known("to"))

    def keys(self, *keys: str) -> None:
        self.find("#lanes").send_keys(*keys)
        self.settle()

    def find(self, query: str) -> Any:
        return self.driver.find_element("css selector", query)

    def click(self, query: str) -> None:
        self.find(query).click()
        self.settle()

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Send a mouse event at a place of the lanes, in pixels from their corner."""
        box = self.script(
            "return document.getElementById('lanes').getBoundingClientRect()"
        )
        event = {
            "type": kind,
            "x": box["x"] + x,
            "y": box["y"] + y,
            "pointerType": "mouse",
            **more,
        }
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)
        self.settle()

    def touch(self, kind: str, places: list[tuple[float, float]]) -> None:
        """Send a touch event with fingers at places of the lanes, in pixels from their corner."""
        box = self.script(
            "return document.getElementById('lanes').getBoundingClientRect()"
        )
        points = [
            {"x": box["x"] + x, "y": box["y"] + y, "id": number}
            for number, (x, y) in enumerate(places)
        ]
        event = {"type": kind, "touchPoints": points}
        self.driver.execute_cdp_cmd("Input.dispatchTouchEvent", event)
        self.settle()

    def press(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def x_of(self, time: float) -> float:
        """Return where a time is drawn, in pixels from the left of the lanes."""
        begin, end = self.window()
        gutter = float(self.known("gutter"))
        width = self.script("return document.getElementById('lanes').clientWidth")
        return gutter + (time - begin) / (end - begin) * (width - gutter)

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def share_apart(self, first: bytes, second: bytes) -> float:
        """Return the share of pixels of two pictures that differ; 1 where their sizes do."""
        self.driver.get("about:blank")
        texts = [base64.b64encode(picture).decode() for picture in (first, second)]
        found: float = self.driver.execute_async_script(COMPARE, *texts)
        return found

    def picture(self, query: str) -> bytes:
        found: bytes = self.find(query).screenshot_as_png
        return found

    def printed(self) -> bytes:
        """Return the page as PDF, as printing makes it."""
        return base64.b64decode(self.driver.print_page())
