"""What a file is that a command cannot read, and which command reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ppsolve.models.documents.errors import ErrorCode, InputError

_PICKLE = (
    "a pickle (nothing in it was run); "
    "`ppsolve convert pipefisher --allow-pickle` reads PipeFisher's timelines"
)
_PICTURE = "a picture; `ppsolve show RESULT --svg FILE` draws one of a result"

BYTES = {
    r"\x80[\2-\5]": _PICKLE,
    r"\x89PNG|%PDF": _PICTURE,
    r"\x1f\x8b|PAR1": "a profile; `ppsolve convert trace FILE -o FOLDER` reads recorded runs",
}
"""What bytes are that are no UTF-8 and begin so, taken for Latin-1."""

TEXTS = {
    r"[(\]}][dl]?p0\n": _PICKLE,
    r"(\s|<[?!][^>]*>)*<svg": _PICTURE,
    r"(\s|<[?!][^>]*>)*<(html|title)": "a page; `ppsolve report RESULT -o FILE` makes one",
    r"\{[^\n]*\}\n\{": "lines of JSON; `ppsolve bench report FILE` reads those of a benchmark",
    r"(#.*\n|---\s|%YAML.*\n|\s)*[\w-]+:\s": "YAML; `ppsolve convert visualizer FILE.yaml` reads "
    "configs of the visualizer",
    r'[^{["\n]*,': "a table; `ppsolve convert torch-csv` reads PyTorch's schedules, "
    "`ppsolve convert trace` recorded ops, `ppsolve goodput fit` step times",
}
"""What texts are that are no JSON and begin so."""

INSTANCE = "this is an instance; `ppsolve optimize FILE -o RESULT` solves it"
RESULT = (
    "this is a result; `ppsolve show FILE` and `ppsolve report FILE -o PAGE` show it"
)
KINDS = {
    "plan": "this is a request for a plan; `ppsolve plan` reads it",
    "plan-result": "this is a plan; `ppsolve plan --instance-out FILE` writes its pipeline",
    "goodput": "these are parameters of a goodput model; `ppsolve goodput` reads them",
    "curve": "this is a curve; `ppsolve show` draws it",
    "bench-report": "this is a report; `ppsolve bench report RESULTS` makes it of results",
    "what-if": "this is a what-if; `ppsolve show` and `ppsolve report` show it",
}
"""What documents of these kinds are, which are no instances."""

FIELDS = {
    "traceEvents": "this is a trace; `ppsolve convert trace FILE -o FOLDER` and `ppsolve convert "
    "kineto-overlap FILE -o FILE` read those of the PyTorch profiler",
    "num_stages num_batches": "this is a config; `ppsolve convert visualizer FILE` reads it",
    "key family": "this is a bench file; `ppsolve bench report FILE` shows it",
    "cluster model": KINDS["plan"],
    **dict.fromkeys(("schedule", "status", "instance_document"), RESULT),
    "kind": INSTANCE,
}
"""What documents are that have these fields."""


def describe_text(beginning: str, marks: Mapping[str, str]) -> str | None:
    """Recognise a file by its beginning: what it looks like, and the command that reads it.

    Marks are `TEXTS`, `BYTES` or both.
    """
    for mark, kind in marks.items():
        if re.match(mark, beginning, re.IGNORECASE):
            return f"this looks like {kind}"
    return None


def kind_named(data: Any) -> str | None:
    """Return the ``kind`` of a JSON document; None where it has none, or one that is no text."""
    kind = data.get("kind") if isinstance(data, dict) else None
    return kind if isinstance(kind, str) else None


def describe_document(data: Any) -> str | None:
    """Return a sentence on a JSON document by its kind, else by its fields, if it is known."""
    if not isinstance(data, dict):
        return None
    of_kind = KINDS.get(kind_named(data) or "")
    of_fields = (
        told for names, told in FIELDS.items() if {*names.split()} <= data.keys()
    )
    return of_kind or next(of_fields, None)


def refuse_others(
    data: Any, expected: str, allowed: str, source: str | None = None
) -> None:
    """Refuse a document that `describe_document` knows as something else than what is allowed."""
    description = describe_document(data)
    if description not in {None, allowed}:
        raise InputError(
            f"expected {expected}, {description}", source=source, code=ErrorCode.TYPE
        )
