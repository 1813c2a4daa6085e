"""Parameters of CP-SAT: every set that a search may use is made here, and fuzzed by the tests."""

from __future__ import annotations

from dataclasses import dataclass

from ortools.sat.python import cp_model, cp_model_helper

from ppsolve.solver.cpsat.question import SearchLimits


@dataclass(frozen=True)
class ModelTraits:
    """What the parameters of a search depend on in its model.

    Parameters
    ----------
    has_plain_intervals : bool
        No-overlaps, and parts of cumulatives of which no two fit together, hold intervals of fixed
        lengths of at least 1. Of others CP-SAT 9.15 calls feasible models infeasible under strong
        propagation, and it ends the process under dynamic precedences.
    is_mostly_alike : bool
        Half of the ops or more stand in families, whose index order decides much.
    has_many_literals : bool
        Some memory rule is, or becomes, a literal for each of many pairs of ops.
    is_small_span : bool
        Device spans of few ops are minimised, with literals for their pairs.
    """

    has_plain_intervals: bool = True
    is_mostly_alike: bool = False
    has_many_literals: bool = False
    is_small_span: bool = False


def configured(
    limits: SearchLimits, spent: float = 0.0, traits: ModelTraits | None = None
) -> cp_model.CpSolver:
    """Return a solver with the limits of a search and the parameters that suit its model.

    Parameters
    ----------
    limits : SearchLimits
        Limits and kind of the search.
    spent : float
        Wall seconds of the limit that were used before, of building the model for one.
    traits : ModelTraits, optional
        What the model is like; by default nothing special.

    Returns
    -------
    CpSolver
        A new solver.
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
        # Ten questions about pipelines of 192 to 1,152 ops had the same answers without linear
        # relaxations, eight of them as soon or sooner: 15.7 instead of 19.2 s of CPU time in all.
        parameters.linearization_level = 0
    elif traits.is_small_span and not limits.dynamic_orders:
        # Every rule is in the linear relaxation of one worker: of several each has its own.
        parameters.num_workers, parameters.linearization_level = 1, 2
    is_unlike = limits.dynamic_orders and not traits.is_mostly_alike
    if is_unlike or traits.has_many_literals:
        _lighten_presolve(parameters)
    # Propagates more of what may run between which ops, for questions about ops that are not alike.
    # DynaPipe's 8 x 16 (sigma 1.6) was refuted 2 % above the analytic bound in 5.5 s of CPU time,
    # in 2.7 with light presolve, and open after 8 without. Where index order says most it does not
    # pay: an uneven 16 x 16 was open at 8.9 s and refuted in 2.1 without.
    parameters.use_strong_propagation_in_disjunctive = orders and is_unlike
    if orders and is_unlike and limits.is_short:
        _hasten(parameters, presolve=traits.has_many_literals)
    return solver


def _lighten_presolve(parameters: cp_model_helper.SatParameters) -> None:
    """Simplify the model once, without probing and symmetries.

    With literals for pairs of ops the first worker began after 0.1 to 0.2 instead of 1.4 to 3.9 s
    on V and interleaved placements of 4 x 8, and nine of nine searches of 12 s found and proved as
    much or more; without any presolve proofs took up to 6 times longer. Other models begin within
    0.2 s of 500 ops anyhow, and were proved in 0.6 s with probing where it took 1.4 to 4.7 s
    without.
    """
    parameters.cp_model_probing_level = 0
    parameters.symmetry_level = 0
    parameters.max_presolve_iterations = 1


def _hasten(parameters: cp_model_helper.SatParameters, *, presolve: bool) -> None:
    """Let a solver begin sooner, and take each step faster.

    It does not propagate precedences of pairs of ops on one resource by themselves: what follows
    from all of them it propagates anyhow. 60 stretches of V 16 x 48 at 1.375p had the same answers
    or better ones in 14.6 in place of 18.6 s of CPU time, without presolve in 12.3; those of an
    uneven 16 x 24, an uneven 16 x 64 and a V placement of 8 x 24 took 42 in place of 44 s. Whole
    pipelines need them: DynaPipe's 4 x 16 (sigma 1.6) was 2.67 % open in place of 1.29 after 20 s.
    Proofs of models with literals need presolve.
    """
    parameters.use_precedences_in_disjunctive_constraint = False
    parameters.cp_model_presolve = presolve
