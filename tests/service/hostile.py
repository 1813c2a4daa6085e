"""Requests that nobody should send: broken HTTP, strange paths, mutated documents, gone senders."""

from __future__ import annotations

import copy
import json
import random
import socket
from collections.abc import Callable
from typing import Any

from ppsolve.models.documents.base import leaves
from ppsolve.solver.service.examples import ASKED, SMALL
from tests.service.cases import drawn

PATHS = (
    *(
        "/quick",
        "/simulate",
        "/check",
        "/what-if",
        "/jobs",
        "/jobs/x",
        "/jobs/x/events",
    ),
    *("/schema", "/heuristics", "/instance", "/health", "/metrics", "/", "/index.html"),
    *("/chart", "/chart/", "/openapi.json", "/docs", "/quick/", "//quick", "/jobs//"),
)

STRANGE = (
    *("/../../etc/passwd", "/..%2f..%2fetc%2fpasswd", "/%00", "/%", "/%zz", "/\\..\\x"),
    *(
        "/chart/../app.py",
        "/chart/%2e%2e/%2e%2e/%2e%2e/app.py",
        "/jobs/%27%20OR%201=1--",
    ),
    *(
        "/jobs/../jobs",
        "/" + "a" * 8000,
        "/schema?kind=" + "x" * 4000,
        "/schema?kind[]=1",
    ),
    *(
        "/jobs/" + "f" * 32,
        "/jobs/%F0%9F%92%A9",
        "http://evil/quick",
        "*",
        "",
        "/?a=" + "&" * 99,
    ),
)

METHODS = (
    "GET",
    "POST",
    "PUT",
    "DELETE",
    "PATCH",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "FOO",
    "",
)

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.1, -0.0, 1e308, -1e308, 10**30, 10**400, 2**63),
    *("", "x", "0", "1p", "80GB", "\x00", "\ud800", "é" * 5000, "../../x", "os:system"),
    *(
        [],
        {},
        [[]],
        [[[[[[1]]]]]],
        {"a": {"b": []}},
        [1] * 3000,
        {"": ""},
        ["F0.0"] * 50,
    ),
    *(
        "kernel.json",
        "/etc/passwd",
        "x" * 100_000,
        "${jndi:ldap://x}",
        "'; DROP TABLE jobs",
    ),
)

HEADERS = (
    *("Content-Type: text/plain", "Content-Type: application/json; charset=utf-16"),
    *(
        "Content-Encoding: gzip",
        "Host: evil.example",
        "Host: localhost",
        "X: " + "y" * 9000,
    ),
    *("Last-Event-ID: -1", "Last-Event-ID: " + "9" * 400, "Authorization: Bearer x"),
    *(
        "Range: bytes=0-99999999",
        "Expect: 100-continue",
        "Origin: https://evil.example",
    ),
    *(
        "Upgrade: websocket",
        "Connection: upgrade",
        "If-None-Match: *",
        "Cookie: a=b",
        "a\x00: b",
    ),
    *(
        "Transfer-Encoding: chunked",
        "Content-Length: 5",
        "Content-Length: -1",
        "nocolon",
    ),
)


def mutated(rng: random.Random, document: Any) -> Any:
    """Return a document with a few leaves, keys or parts that are wrong."""
    document = copy.deepcopy(document)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        places = list(leaves(document))
        if not places:
            break
        location, _ = rng.choice(places)
        parent = document
        depth = rng.randint(1, len(location)) if location else 0
        if depth == 0:
            return rng.choice(VALUES)
        for key in location[: depth - 1]:
            parent = parent[key]
        key, action = location[depth - 1], rng.randrange(4)
        if action == 0 and isinstance(parent, dict):
            del parent[key]
        elif action == 1 and isinstance(parent, dict):
            parent[rng.choice(["x", "", "__class__", "\x00", "kind", "options"])] = (
                parent[key]
            )
        else:
            parent[key] = rng.choice(VALUES)
    return document


def question(rng: random.Random) -> tuple[str, Any]:
    """Return a path and a document that was right once."""
    path = rng.choice(list(ASKED))
    document = copy.deepcopy(ASKED[path])
    if "instance" in document and rng.random() < 0.5:
        document["instance"] = drawn(rng.randrange(50))
    if path == "jobs":
        options = {
            "time_limit": 0.1,
            "workers": 1,
            "heuristics": ["gpipe"],
            "params": {},
        }
        document["options"] = options
        if rng.random() < 0.3:
            document = {"task": "bench", "instances": [SMALL], "options": options}
    return f"/{path}", mutated(rng, document)


def body(rng: random.Random) -> tuple[str, bytes]:
    """Return a path and a body."""
    path, document = question(rng)
    text = json.dumps(document)
    spoiled: list[Callable[[], bytes]] = [
        lambda: text.encode(),
        lambda: text.encode(),
        lambda: text.encode(),
        lambda: text.encode(),
        lambda: text[: rng.randrange(len(text) + 1)].encode(),
        lambda: text.encode("utf-16"),
        lambda: b"\xef\xbb\xbf" + text.encode(),
        lambda: b"[" * rng.choice([100, 100_000]) + text.encode(),
        lambda: b'{"a":' * rng.choice([100, 100_000]),
        lambda: rng.randbytes(rng.randrange(2000)),
        lambda: text.replace(":", ": NaN, ", 1).encode(),
        lambda: text.replace("1", "1" * 5000, 1).encode(),
        lambda: text.replace("1", "1e99999999", 1).encode(),
        lambda: ("{" + text[1:-1] + "," + text[1:]).encode(),
        lambda: b" " * rng.choice([10, 9_000_000]),
        lambda: b"",
    ]
    return path, rng.choice(spoiled)()


def request(rng: random.Random) -> bytes:
    """Return a request as it goes over the wire."""
    if rng.random() < 0.05:
        return rng.randbytes(rng.randrange(1, 3000)) + b"\r\n\r\n"
    method, path, content = "POST", *body(rng)
    if rng.random() < 0.3:
        method = rng.choice(METHODS)
        path = rng.choice(PATHS if rng.random() < 0.5 else STRANGE)
    lines = [f"{method} {path} HTTP/1.1"]
    if rng.random() < 0.95:
        lines.append("Host: 127.0.0.1")
    lines += rng.choices(HEADERS, k=rng.choice([0, 0, 0, 0, 1, 3, 200]))
    if rng.random() < 0.9:
        lines.append("Content-Type: application/json")
    if rng.random() < 0.95:
        lines.append(f"Content-Length: {len(content)}")
    head = "\r\n".join(lines).encode("latin-1", "replace")
    return head + b"\r\n\r\n" + content


def send(port: int, data: bytes, rng: random.Random) -> int | None:
    """Send a request, or a part of it, and return the status of the answer, None without any."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        leaves_early = rng.random() < 0.15
        if leaves_early:
            data = data[: rng.randrange(len(data) + 1)]
        try:
            connection.sendall(data)
            if leaves_early:
                return None
            # Where the service waits for more, it is left waiting.
            is_whole = (
                b"Content-Length: %d\r" % len(data.partition(b"\r\n\r\n")[2]) in data
            )
            connection.settimeout(60 if is_whole else 1)
            head = connection.recv(64)
        except OSError:
            return None
    words = head.split(b" ", 2)
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else None
