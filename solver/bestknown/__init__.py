"""Best known bounds of a directory of instances: kept in one file, proven again on demand."""

from ppsolve.solver.bestknown.entries import (
    FILE_NAME,
    BestKnown,
    Claim,
    Entry,
    load_best_known,
    save_best_known,
)
from ppsolve.solver.bestknown.updating import Updated, update
from ppsolve.solver.bestknown.verification import Verified, verify

__all__ = [
    "FILE_NAME",
    "BestKnown",
    "Claim",
    "Entry",
    "Updated",
    "Verified",
    "load_best_known",
    "save_best_known",
    "update",
    "verify",
]
