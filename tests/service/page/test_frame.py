"""The page in a frame of a page of another address on the same machine, as notebooks show it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest

pytest.importorskip("selenium", reason="needs the extra `browser`")
pytest.importorskip("fastapi", reason="needs the extra `serve`")

from ppsolve.solver.service.frame import ExplorerFrame
from tests.service.conftest import RunningService
from tests.service.page.visitor import AT_REST, Visitor

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SHOWN = {
    "kind": "pipeline",
    "name": 'in a "frame" <b>',
    "num_devices": 3,
    "num_microbatches": 7,
    "times": {"forward": 10, "backward": 20},
}


@pytest.fixture
def notebook(service: RunningService) -> Iterator[str]:
    """Serve a page with a frame; yield its address."""
    url = f"{service.url}/#pipeline={quote(json.dumps(SHOWN))}"
    cell = ExplorerFrame(url, 700)._repr_html_()
    page = f"<!doctype html><link rel=icon href=data:,>{cell}".encode()

    class NotebookHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), NotebookHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_a_notebook_shows_the_pipeline_in_a_frame(
    visitor: Visitor, notebook: str
) -> None:
    browser = visitor.browser
    browser.visit(notebook)
    frame = browser.driver.find_element("css selector", "iframe")
    assert frame.rect["height"] >= 700
    browser.driver.switch_to.frame(frame)
    visitor.until(lambda: browser.script(AT_REST))
    microbatches = "return document.getElementById('microbatches').value"
    assert browser.script(microbatches) == "7"
    assert visitor.text("#table").count("1f1b") >= 1
    browser.driver.switch_to.default_content()
