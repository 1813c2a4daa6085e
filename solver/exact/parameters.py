"""Parameters of CP-SAT: every set that a search may use is made here, and fuzzed by the tests."""

from __future__ import annotations

from dataclasses import dataclass

from ortools.sat.python import cp_model

from ppsolve.solver.exact.question import SearchLimits


@dataclass(frozen=True)
class ModelTraits:
    """Properties of a model that decide the parameters of its search."""

    # all intervals that no two of fit together have fixed lengths of at least 1. With others CP-SAT
    # 9.15 calls feasible models infeasible under strong propagation, and crashes under dynamic
    # precedences
    has_plain_intervals: bool = True
    # half of the ops or more stand in families, whose index order decides much
    is_mostly_alike: bool = False
    # some memory rule is, or becomes, a literal for each of many pairs of ops
    has_many_literals: bool = False
    # device spans of few ops are minimised, with literals for their pairs
    is_small_span: bool = False


def configured(
    limits: SearchLimits, spent: float = 0.0, traits: ModelTraits | None = None
) -> cp_model.CpSolver:
    """Return a solver with the limits of a search and the parameters that suit its model.

    `spent` wall seconds of the limit were used before. Without `traits` the model has nothing
    special.
    """
    traits = traits or ModelTraits()
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = limits.workers
    # CP-SAT takes seeds of 31 bits.
    parameters.random_seed = limits.seed % 2**31
    parameters.relative_gap_limit = limits.gap
    if limits.seconds is not None:
        parameters.max_time_in_seconds = max(0.0, limits.seconds - spent)
    if limits.deterministic is not None:
        parameters.max_deterministic_time = limits.deterministic
    parameters.catch_sigint_signal = False
    if limits.is_plain:
        return solver
    orders = limits.dynamic_orders and traits.has_plain_intervals
    parameters.use_dynamic_precedence_in_disjunctive = orders
    if limits.dynamic_orders and limits.workers == 1:
        parameters.linearization_level = 0
    elif traits.is_small_span and not limits.dynamic_orders:
        # Every rule is in the linear relaxation of one worker: of several each has its own.
        parameters.num_workers, parameters.linearization_level = 1, 2
    is_unlike = limits.dynamic_orders and not traits.is_mostly_alike
    if is_unlike or traits.has_many_literals:
        # With literals probing costs seconds; without any presolve proofs take far longer.
        parameters.cp_model_probing_level = 0
        parameters.symmetry_level = 0
        parameters.max_presolve_iterations = 1
    # Propagates more between ops that are not alike; where index order says most it does not pay.
    parameters.use_strong_propagation_in_disjunctive = orders and is_unlike
    if orders and is_unlike and limits.is_short:
        # Dynamic precedences propagate the same; whole pipelines and literals need both.
        parameters.use_precedences_in_disjunctive_constraint = False
        parameters.cp_model_presolve = traits.has_many_literals
    return solver
