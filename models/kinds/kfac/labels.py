"""Labels of PipeFisher's timelines and schedules, and the op kinds that stand for them."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_LABEL = 500
"""Most characters of a label; module paths of PipeFisher's BERT timelines have about 40."""

UP_PIPE = ":up_pipe"
"""Suffix of labels of Chimera's second pipe."""

PROFILED_STEP = "start_end"
START, END = "-- start --", "-- end --"
SAVE_OFF, SAVE_ON = "turn_off_save_inputs_outgrads", "turn_on_save_inputs_outgrads"

KNOWN_LABELS = (
    PROFILED_STEP,
    "call_forward",
    "call_backward",
    *(f"{kind}_kron_{factor}" for kind in ("cov", "sync", "inv") for factor in "AB"),
)
"""All labels, without module and pipe."""

_CALL = re.compile(r"call_(forward|backward)(:up_pipe)?")
_WORK = re.compile(
    r"(cov|sync|inv)_kron_([AB])(?::(?!up_pipe$)(.*?))?(:up_pipe)?", re.DOTALL
)


def precondition_label(module: str) -> str:
    """Return the label of a module's preconditioning in patterns of described pipelines."""
    return f"precondition:{module}"


@dataclass(frozen=True)
class Label:
    """Parts of a label."""

    text: str
    # ``step`` (the profiled step), ``forward``, ``backward``, ``cov``, ``sync`` or ``inv``.
    kind: str
    factor: str = ""  # ``A`` or ``B`` for K-FAC work, else empty
    module: str = ""  # dotted path of the module, empty where the label has none
    pipe: int = (
        0  # 0, or 1 for labels that end in ``:up_pipe`` (the second pipe of Chimera)
    )

    @property
    def data_kind(self) -> str:
        """Kind of the ops that make the data of its factor: ``forward`` or ``backward``."""
        return "forward" if self.factor == "A" else "backward"


def parse_label(text: str) -> Label | None:
    """Split the label of a timeline into its parts; return None for any other text."""
    if text == PROFILED_STEP:
        return Label(text, "step")
    if call := _CALL.fullmatch(text):
        return Label(text, call[1], pipe=int(call[2] is not None))
    if work := _WORK.fullmatch(text):
        return Label(text, work[1], work[2], work[3] or "", int(work[4] is not None))
    return None


KIND_OF = {
    ("cov", "A"): "CA",
    ("cov", "B"): "CB",
    ("sync", "A"): "SA",
    ("sync", "B"): "SB",
    ("inv", "A"): "IA",
    ("inv", "B"): "IB",
}
"""Kind of K-FAC ops by class and factor: curvature, sync and inversion of factors A and B."""

PRECONDITION_KIND = "PC"
"""Preconditioning of a module's gradient, once an iteration."""
