"""``ppsolve stress``: how a schedule holds when ops do not take what was planned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.solver.api.kinds import load_instance
from ppsolve.solver.api.stress import RUNS, stress
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.options import argument, value
from ppsolve.solver.cli.output import check_writable, deliver, stdout_console
from ppsolve.solver.heuristics.stress.replay import ALL_KINDS
from ppsolve.solver.views.stress import stress_report


def stress_command(
    file: Annotated[Path, argument("RESULT", "A result (JSON); - is stdin.")],
    jitter: Annotated[
        list[str] | None,
        value(
            "[KIND=]CV",
            "Standard deviation over mean of durations (0.05 or 5%), of all ops or of a kind; "
            "repeatable.",
        ),
    ] = None,
    trace: Annotated[
        list[str] | None,
        value(
            "FILE",
            "Take the jitter of each kind of op from this recorded run; repeatable.",
        ),
    ] = None,
    slow: Annotated[
        list[str] | None,
        value(
            "DEVICE=FACTOR", "A device whose ops take FACTOR times as long; repeatable."
        ),
    ] = None,
    instance: Annotated[
        Path | None, value("FILE", "Instance, if the result contains none.")
    ] = None,
    runs: Annotated[int, value("N", "Number of random replays.", min=1)] = RUNS,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
    output: opt.Output = None,
) -> None:
    """Replay a result's schedules with random durations, to see if the best one stays ahead.

    Orders stay the same, and every op starts as early as its order allows. The best schedule and
    every feasible heuristic of the result get the same durations, e.g. `--jitter 0.014` or
    `--jitter F=0.01 --jitter W=0.03 --slow 2=1.1`.
    """
    check_writable(output, file, *([instance] if instance else []))
    if str(file) == str(instance) == "-":
        raise InputError(
            "only one of the files can be standard input", code=ErrorCode.CONFLICT
        )
    data = read_json(file)
    by_kind = _recorded(trace or [], data)
    for text in jitter or ():
        kind, _, share = text.rpartition("=")
        by_kind[kind.strip() or ALL_KINDS] = opt.share_of(share, "--jitter")
    if not by_kind:
        raise InputError(
            "expected --jitter or --trace, e.g. --jitter 0.014", code=ErrorCode.MISSING
        )
    factors = {
        _device(device): number
        for device, number in (
            opt.named_number(text, "--slow", "DEVICE=FACTOR") for text in slow or ()
        )
    }
    report = stress(
        data,
        by_kind,
        slow=factors,
        runs=runs,
        seed=seed,
        instance=None if instance is None else load_instance(instance),
        source=source_name(file),
    )
    if not deliver(report, output, as_json=as_json):
        stdout_console().print(stress_report(report))


def _recorded(files: list[str], result: Any) -> dict[str, float]:
    """Return the jitter of each kind of op in a recorded run, of the kinds that a result has.

    The halves of a split backward vary as a recorded whole one does.
    """
    if not files:
        return {}
    from ppsolve.solver.formats.detect import read_trace
    from ppsolve.solver.studies.traces.fits import fit

    jitter = fit(read_trace([Path(file) for file in files])).jitter
    halves = dict.fromkeys(("I", "W"), jitter["B"]) if "B" in jitter else {}
    kinds = set(_kinds_in(result))
    return {kind: number for kind, number in (halves | jitter).items() if kind in kinds}


def _kinds_in(result: Any) -> Iterator[str]:
    """Yield the kind of each op of a result or bare schedule, of none in what is neither."""
    owner = result if isinstance(result, dict) else {}
    schedule = owner.get("schedule", owner)
    ops = schedule.get("ops") if isinstance(schedule, dict) else None
    for op in ops if isinstance(ops, list) else ():
        if isinstance(op, dict) and isinstance(op.get("kind"), str):
            yield op["kind"]


def _device(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InputError(
            f"expected DEVICE=FACTOR, got {text[:40]!r}",
            field="--slow",
            code=ErrorCode.SYNTAX,
        )
    return int(text)
