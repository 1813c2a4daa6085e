"""Photograph a report over benchmark results: ``python docs/making/make_bench_picture.py``.

Needs the extras ``browser`` and ``plot``, chromium and chromedriver. Fourteen instances of two
seconds each, with a heuristic of a user's own; times depend on the machine.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from PIL import Image

from tests.views.page.browser import Browser

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "instances/few_microbatches", ROOT / "instances/memory_scan")
PUBLISHED = "1f1b,gpipe,looped-bfs,zb-1p,zb-h1,list-tail,list-backward-first"
OWN = ROOT / "examples/own_heuristic.py"
PICTURE = ROOT / "docs/pictures/bench-report.png"
WIDTH, HEIGHT = 1350, 1350
COLOURS = 128
"""Enough for letters and lines; more would take more bytes."""


def main() -> None:
    """Run, write the page, and keep what the browser shows."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        shutil.copy(OWN, folder)
        own = ("--heuristics", PUBLISHED, "--heuristic", f"{OWN.name}:lazy")
        _bench(folder, *FOLDERS, "-t", "2", *own, "-o", "r.jsonl")
        _bench(folder, "report", "r.jsonl", "-o", "report.html")
        browser = Browser(folder / "profile")
        browser.open(folder / "report.html", WIDTH, HEIGHT)
        shot = Image.open(io.BytesIO(browser.driver.get_screenshot_as_png()))
        few = shot.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
        few.save(PICTURE, optimize=True)
        browser.driver.quit()


def _bench(folder: Path, *arguments: str | Path) -> None:
    command = [sys.executable, "-m", "ppsolve", "bench", *map(str, arguments)]
    subprocess.run(command, check=True, cwd=folder)


if __name__ == "__main__":
    main()
