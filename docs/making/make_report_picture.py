"""Photograph pages with results: ``python docs/making/make_report_picture.py``.

Needs the extras ``browser`` and ``plot``, chromium and chromedriver. In the light picture is the
report of the quick start; in the dark one are two schedules of one instance, and in the best one a
late forward is chosen, which shows all that it waited for.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from PIL import Image

import ppsolve
from tests.views.page.browser import Browser

ROOT = Path(__file__).resolve().parents[2]
FIRST_LANE = 34
"""Where the first lane is where there are several schedules, in pixels below the upper edge."""

WIDTH = 1000
COLOURS = 128  # a third of the bytes, and no difference to be seen


@dataclass(frozen=True)
class ReportPicture:
    """A picture of a page with a result of an instance."""

    name: str
    instance: str
    height: int  # pixels
    heuristics: tuple[str, ...] = ()
    chosen: str = ""  # an op of the first lane
    is_dark: bool = False


PICTURES = (
    ReportPicture("report", "memory_scan/scan-4x8-6", 424),
    ReportPicture(
        "report-dark", "p2p_heavy/nic-40-4x8", 950, ("zb-h1",), "F0.7", is_dark=True
    ),
)


def main() -> None:
    """Solve, write the page, choose an op, and keep what the browser shows."""
    with tempfile.TemporaryDirectory() as place:
        browser = Browser(Path(place) / "profile")
        for picture in PICTURES:
            found = Image.open(BytesIO(_photograph(picture, browser, Path(place))))
            target = ROOT / f"docs/pictures/{picture.name}.png"
            found.quantize(COLOURS, dither=Image.Dither.NONE).save(
                target, optimize=True
            )
        browser.driver.quit()


def _photograph(picture: ReportPicture, browser: Browser, folder: Path) -> bytes:
    result, page = folder / "result.json", folder / "report.html"
    instance = ROOT / f"instances/{picture.instance}.json"
    _run("optimize", instance, "--deterministic", "--workers", "1", "-q", "-o", result)
    shown = (part for name in picture.heuristics for part in ("--heuristic", name))
    _run("report", result, *shown, "-o", page)
    browser.open(page, WIDTH, picture.height, dark=picture.is_dark)
    found = ppsolve.Result.model_validate_json(result.read_text(encoding="utf-8"))
    assert found.schedule is not None
    for op in (op for op in found.schedule.ops if op.id == picture.chosen):
        browser.press(browser.x_of((float(op.start) + float(op.end)) / 2), FIRST_LANE)
    browser.settle()
    photograph: bytes = browser.driver.get_screenshot_as_png()
    return photograph


def _run(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "ppsolve", *map(str, arguments)], check=True)


if __name__ == "__main__":
    main()
