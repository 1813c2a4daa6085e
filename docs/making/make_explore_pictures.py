"""Photograph the page of the service: ``python docs/making/make_explore_pictures.py``.

Needs the extras ``browser``, ``plot`` and ``serve``, chromium and chromedriver. How long the proof
in the dark picture takes depends on the machine.
"""

from __future__ import annotations

import sys
import tempfile
from io import BytesIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from PIL import Image

from tests.service.conftest import serving
from tests.service.page.visitor import Visitor
from tests.views.page.browser import Browser

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 1240
COLOURS = 64  # a fifth of the bytes, and no difference to be seen


def main() -> None:
    """Open the page, prove a schedule, and keep what the browser shows."""
    with tempfile.TemporaryDirectory() as folder, serving() as service:
        visitor = Visitor(Browser(Path(folder)), service.url)
        visitor.open(width=WIDTH, height=1060)
        _keep(visitor, "explore")
        visitor.open("#tour=6", WIDTH, height=1080, dark=True)
        visitor.browser.click("#prove")
        visitor.until(lambda: "is optimal" in visitor.text("#proof-state"))
        visitor.rest()
        _keep(visitor, "explore-dark")
        visitor.open(width=500, height=1010)
        _keep(visitor, "explore-narrow")
        visitor.browser.driver.quit()


def _keep(visitor: Visitor, name: str) -> None:
    visitor.browser.settle()
    shot = Image.open(BytesIO(visitor.browser.driver.get_screenshot_as_png()))
    few = shot.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(ROOT / f"docs/pictures/{name}.png", optimize=True)


if __name__ == "__main__":
    main()
