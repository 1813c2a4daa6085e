"""Requests without a client of the library: documents in, status and document out."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

from tests.service.conftest import RunningService

Answer = tuple[int, Any, dict[str, str]]


def ask(
    service: RunningService,
    method: str,
    path: str,
    document: Any = None,
    **headers: str,
) -> Answer:
    """Return status, document and headers (names in lower case) of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    body = document if isinstance(document, bytes | None) else json.dumps(document)
    sent = {"Content-Type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    try:
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    named = {name.lower(): value for name, value in response.getheaders()}
    is_json = "json" in named.get("content-type", "")
    return response.status, json.loads(content) if is_json else content, named


def ended(service: RunningService, id: str) -> dict[str, Any]:
    """Return a job once it has ended."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        _, job, _ = ask(service, "GET", f"/jobs/{id}")
        if job["state"] not in {"queued", "running"}:
            return job
        time.sleep(0.05)
    raise AssertionError(f"job {id} has not ended")
