"""Measure pages in headless Chromium: ``python benchmarks/page.py [--runs N]``.

Needs the extra ``browser``, chromium and chromedriver. For each instance the schedule of a
heuristic is written as a page and opened `--runs` times; printed are the seconds that writing
takes, the size of the file, the time from navigation to the first paint, and that of one zoom step:
the work of the script, and until the next frame. Medians of all runs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ppsolve.solver.views.page.document import page
from tests.views.page.browser import Browser
from tests.views.page.cases import shipped

PAGES = {
    "uniform/uniform-4x8-1p": "zb-h1",
    "memory_curve/curve-16x48-v-1.5p": "list-tail",
    "uniform/uniform-32x256-1p": "zb-h1",
}
STEP = """
const done = arguments[0];
const began = performance.now();
document.querySelector("[data-do=in]").click();
requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
"""


def measure(browser: Browser, file: Path, runs: int) -> tuple[float, float, float]:
    """Return medians of first paint, work of a zoom step, and time until its frame, in ms."""
    first, work, frame = [], [], []
    for _ in range(runs):
        browser.open(file, 1800, 1000)
        first.append(float(browser.known("first")))
        for _ in range(6):
            frame.append(float(browser.driver.execute_async_script(STEP)))
            work.append(float(browser.known("took")))
    return statistics.median(first), statistics.median(work), statistics.median(frame)


def main() -> None:
    """Measure and print a markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = max(1, parser.parse_args().runs)
    print(
        "| instance | ops | written (s) | MB | first paint (ms) | zoom step (ms) | its frame (ms) |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(Path(folder) / "profile")
        for name, heuristic in PAGES.items():
            shown = shipped(name, heuristic)
            began = time.perf_counter()
            text = page([shown])
            written = time.perf_counter() - began
            file = Path(folder) / "page.html"
            file.write_text(text, encoding="utf-8")
            first, work, frame = measure(browser, file, runs)
            ops, size = shown.schedule.problem.num_ops, file.stat().st_size / 1e6
            print(
                f"| {Path(name).name} | {ops:,} | {written:.2f} | {size:.2f} | {first:.0f} "
                f"| {work:.1f} | {frame:.0f} |"
            )
        browser.driver.quit()


if __name__ == "__main__":
    main()
