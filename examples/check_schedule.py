"""Check a schedule that another program made: every broken rule, by an independent checker."""

import ppsolve

INSTANCE = ppsolve.PipelineInstance(
    num_devices=2,
    num_microbatches=1,
    times={"forward": 10, "backward": 20},
    p2p={"latency": 1},
)

STARTS = {"F0.0": 0, "F1.0": 11, "B1.0": 21, "B0.0": 42}
"""Start of each op: kind, stage and micro-batch."""


def document(starts: dict[str, float]) -> dict[str, object]:
    """Return the starts as a schedule document; ends may be left out."""
    ops = [{"id": op, "start": start} for op, start in starts.items()]
    return {"time_unit": "us", "ops": ops}


def main() -> None:
    """Check a good schedule, and the same with one op too early and one left out."""
    print("as given:", ppsolve.check(INSTANCE, document(STARTS)) or "valid")
    for violation in ppsolve.check(INSTANCE, document(STARTS | {"B0.0": 35})):
        print("too early:", violation)
    without = {op: start for op, start in STARTS.items() if op != "F1.0"}
    for violation in ppsolve.check(INSTANCE, document(without)):
        print("left out:", violation)


if __name__ == "__main__":
    main()
