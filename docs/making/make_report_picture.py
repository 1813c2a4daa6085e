"""Photograph a page with results: ``python docs/making/make_report_picture.py``.

Needs the extra ``browser``, chromium and chromedriver. Two schedules of one instance; in the
best one a late forward is chosen, which shows all that it waited for.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import ppsolve
from tests.views.page.browser import Browser

ROOT = Path(__file__).resolve().parents[2]
INSTANCE = ROOT / "instances/p2p_heavy/nic-40-4x8.json"
PICTURE = ROOT / "docs/report.png"
CHOSEN, FIRST_LANE = "F0.7", 34
"""The op, and where the first lane is, in pixels below the upper edge of the chart."""

WIDTH, HEIGHT = 1000, 760


def main() -> None:
    """Solve, write the page, choose an op, and keep what the browser shows."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        result, page = folder / "result.json", folder / "report.html"
        _run("optimize", INSTANCE, "--deterministic", "--workers", "1", "-q", "-o", result)
        _run("report", result, "--heuristic", "zb-h1", "-o", page)
        found = ppsolve.Result.model_validate_json(result.read_text(encoding="utf-8"))
        assert found.schedule is not None
        op = next(op for op in found.schedule.ops if op.id == CHOSEN)
        browser = Browser(folder / "profile")
        browser.open(page, WIDTH, HEIGHT)
        browser.press(browser.x_of((float(op.start) + float(op.end)) / 2), FIRST_LANE)
        browser.script("document.querySelector('[data-do=in]').parentElement.scrollIntoView()")
        browser.settle()
        PICTURE.write_bytes(browser.driver.get_screenshot_as_png())
        browser.driver.quit()


def _run(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "ppsolve", *map(str, arguments)], check=True)


if __name__ == "__main__":
    main()
