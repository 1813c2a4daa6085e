"""Measuring curves by heuristics and the exact solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicStatus, Result, StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver import board
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.api.registry import (
    all_heuristics,
    chosen_heuristics,
    quick_heuristics,
)
from ppsolve.solver.board import WrongScheduleError
from ppsolve.solver.heuristics.heuristic import Heuristic, HeuristicOutcome
from ppsolve.solver.kinds.kind import Kind
from ppsolve.solver.run.progress import Progress
from ppsolve.solver.studies.plan import curve as measuring
from ppsolve.solver.studies.plan.curve import (
    NoScheduleError,
    measure_curve,
    with_microbatches,
)
from tests.bruteforce import brute_force
from tests.studies.goodput.curve_cases import numbers_of, pipeline


class TestMeasuring:
    def test_best_of_all_that_apply(self) -> None:
        measured = measure_curve(pipeline(), [4, 16])
        assert measured.methods == ("gpipe", "gpipe")
        assert measured.optimal == (True, True)
        assert measured.time_unit == "us"

    def test_exact(self) -> None:
        instance = pipeline(num_devices=2, memory={"capacity": 2, "activation": 1})
        told: list[Progress] = []
        measured = measure_curve(
            instance,
            [3, 1],
            exact=True,
            time_limit=20,
            workers=1,
            on_progress=told.append,
        )
        optima = [
            brute_force(lower(with_microbatches(instance, number))) for number in (1, 3)
        ]
        assert measured.microbatches == (1, 3)
        assert list(measured.makespans) == optima
        assert measured.optimal == (True, True)
        assert {"1 micro-batches (1 of 2)", "3 micro-batches (2 of 2)"} <= {
            t.source for t in told
        }

    def test_makespan_whatever_the_objective(self) -> None:
        plain = measure_curve(pipeline(), [4], heuristics=["1f1b"])
        span = measure_curve(
            pipeline(objective="device_span"), [4], heuristics=["1f1b"]
        )
        assert plain == span

    @pytest.mark.parametrize(
        ("fields", "has_sync"),
        [
            ({}, False),
            ({"optimizer": 1}, False),
            ({"collectives": {"forward": {"allreduce": 1}, "all_gather": 1}}, False),
            ({"allreduce": 1}, True),
            ({"collectives": {"reduce_scatter": [1, 2, 3, 4]}}, True),
        ],
    )
    @pytest.mark.parametrize("exact", [False, True])
    def test_sync_is_noticed(
        self, fields: dict[str, Any], has_sync: bool, exact: bool
    ) -> None:
        instance = pipeline(**fields)
        measured = measure_curve(
            instance, [2], heuristics=["1f1b"], exact=exact, time_limit=0
        )
        assert (measured.has_sync, measured.replicas) == (has_sync, None)
        if has_sync:
            timed = measure_curve(
                instance, [2], heuristics=["1f1b"], replicas=np.int64(8)
            )
            assert timed.replicas == 8
            assert timed.holds_for(np.array([[1, 8]])).tolist() == [[False, True]]
            assert measured.holds_for(np.array([1, 8])).tolist() == [True, True]
            return
        with pytest.raises(
            InputError, match=r"replicas: expected none, as there is no sync .* 8"
        ):
            measure_curve(instance, [2], heuristics=["1f1b"], replicas=8)

    def test_quick_heuristics_do_not_search(self) -> None:
        every = {one.name for one in chosen_heuristics(pipeline(), None)}
        left_out = every - set(quick_heuristics(pipeline()))
        assert left_out == {
            "clusters",
            "v-adaptive",
            "permutations",
            "list-sweep",
            "order-search",
            "frontier-beam",
        }
        assert all(all_heuristics()[name].is_search for name in left_out)

    def test_the_first_heuristic_is_enough_where_it_is_optimal(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[Any] = []

        def told(instance: PipelineInstance, **options: Any) -> Result:
            asked.append(list(options["heuristics"]))
            return run(instance, **options)

        run = measuring.optimize
        monkeypatch.setattr(measuring, "optimize", told)
        assert measure_curve(pipeline(), [4], heuristics=["gpipe", "1f1b"]).optimal == (
            True,
        )
        assert asked == [["gpipe"]]
        # Neither one that does not apply nor one that is not optimal ends the search.
        for names in (["chimera", "gpipe"], ["1f1b", "gpipe"]):
            assert measure_curve(pipeline(), [16], heuristics=names).methods == (
                "gpipe",
            )
            assert asked[-2:] == [names[:1], names]

    def test_decimals_are_kept(self) -> None:
        times = {"forward": 0.1, "backward": 0.2}
        measured = measure_curve(
            pipeline(times=times, p2p={}), [3, 7], heuristics=["gpipe"]
        )
        assert measured.makespans == (1.8, 3.0)

    def test_fewer_microbatches_are_never_slower(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def late(
            kind: Any, one: Heuristic, instance: Any, *rest: Any, **named: Any
        ) -> HeuristicOutcome:
            outcome = original(kind, one, instance, *rest, **named)
            assert outcome.schedule is not None
            if instance.num_microbatches == 5:
                start = outcome.schedule.start.copy()
                start[int(outcome.schedule.end.argmax())] += 1000
                schedule = Schedule(rest[0], start)
                return HeuristicOutcome(one.name, HeuristicStatus.FEASIBLE, schedule)
            return outcome

        original = Kind.run_heuristic
        monkeypatch.setattr(Kind, "run_heuristic", late)
        measured = measure_curve(pipeline(), [4, 5, 6], heuristics=["1f1b"])
        assert measured.makespan(5) == measured.makespan(6) > measured.makespan(4)

    def test_memory_is_counted(self) -> None:
        tight = pipeline(memory={"capacity": 2, "activation": 1})
        measured = measure_curve(tight, numbers_of(tight))
        free = measure_curve(pipeline(), numbers_of(tight))
        assert measured.slope > free.slope
        assert all(a >= b for a, b in zip(measured.bounds, free.bounds, strict=True))

    def test_bidirectional_pipes(self) -> None:
        instance = pipeline(placement="bidirectional")
        measured = measure_curve(instance, numbers_of(instance), heuristics=["chimera"])
        direct = measure_curve(instance, [100], heuristics=["chimera"])
        assert (measured.multiple, measured.slope) == (2, 3)
        assert measured.makespan(100) == direct.makespan(100)
        with pytest.raises(
            InputError, match=r"microbatches\[1\]: expected a multiple of 2, got 7"
        ):
            measured.makespan([6, 7])


class TestFailures:
    def test_no_heuristic_fits(self) -> None:
        tight = pipeline(memory={"capacity": 4, "activation": 1})
        with pytest.raises(
            NoScheduleError, match="with 8 micro-batches no schedule was found: "
        ):
            measure_curve(tight, [4, 8], heuristics=["gpipe"])
        with pytest.raises(NoScheduleError) as caught:
            measure_curve(tight, [8], heuristics=["gpipe", "chimera"])
        assert not caught.value.is_proved
        assert caught.value.microbatches == 8
        assert caught.value.reasons[0].startswith(
            "gpipe infeasible: memory: device 0 holds 8 of 4"
        )
        assert (
            caught.value.reasons[1]
            == "chimera not applicable: needs bidirectional pipes"
        )

    @pytest.mark.parametrize("exact", [False, True])
    def test_memory_that_nothing_fits(self, exact: bool) -> None:
        hopeless = pipeline(memory={"capacity": 1, "activation": 2})
        with pytest.raises(
            NoScheduleError, match=r"with 4 micro-batches .* \(proved\): "
        ) as caught:
            measure_curve(hopeless, [4], exact=exact)
        assert caught.value.is_proved

    def test_exact_without_time(self) -> None:
        tight = pipeline(memory={"capacity": 4, "activation": 1})
        with pytest.raises(
            NoScheduleError, match="no schedule was found: stopped: time_limit"
        ):
            measure_curve(tight, [8], heuristics=["gpipe"], exact=True, time_limit=0)

    def test_wrong_schedule(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def wrong(
            _: Any, one: Heuristic, __: Any, problem: Problem, *___: Any, **____: Any
        ) -> HeuristicOutcome:
            start = np.zeros(problem.num_ops, dtype=np.int64)
            return HeuristicOutcome(
                one.name, HeuristicStatus.FEASIBLE, Schedule(problem, start)
            )

        monkeypatch.setattr(Kind, "run_heuristic", wrong)
        with pytest.raises(WrongScheduleError, match="1f1b: "):
            measure_curve(pipeline(), [4], heuristics=["1f1b"])
        monkeypatch.setattr(board, "check_schedule", lambda *_: [])
        with pytest.raises(
            WrongScheduleError, match="1f1b found 2 below the bound 27 of work"
        ):
            measure_curve(pipeline(), [4], heuristics=["1f1b"])

    def test_interrupted_exact_points(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[int] = []

        def interrupted(instance: PipelineInstance, **options: Any) -> Result:
            asked.append(instance.num_microbatches)
            found = run_exactly(instance, **options)
            stopped = {"stop_reason": StopReason.INTERRUPTED} if len(asked) == 2 else {}
            return found.model_copy(update=stopped)

        run_exactly = measuring.optimize
        monkeypatch.setattr(measuring, "optimize", interrupted)
        with pytest.raises(KeyboardInterrupt):
            measure_curve(
                pipeline(), [2, 3, 4], heuristics=["1f1b"], exact=True, time_limit=0
            )
        assert asked == [2, 3]

    def test_exact_results_without_the_work_bound(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run_exactly = measuring.optimize

        def without(instance: PipelineInstance, **options: Any) -> Result:
            return run_exactly(instance, **options).model_copy(update={"bounds": ()})

        monkeypatch.setattr(measuring, "optimize", without)
        measured = measure_curve(
            pipeline(), [2, 4], heuristics=["1f1b"], exact=True, time_limit=0
        )
        assert measured.work_bounds == (21, 27)

    def test_wrong_exact_schedule(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(measuring, "check", lambda *_, **__: ["overlap: a and b"])
        with pytest.raises(
            WrongScheduleError, match=r"gpipe: overlap: a and b \(1 in all\)"
        ):
            measure_curve(
                pipeline(), [4], heuristics=["gpipe"], exact=True, time_limit=0
            )

    @pytest.mark.parametrize(
        ("fields", "arguments", "message"),
        [
            (
                {"times": {"forward": [1, [1, 2, 3, 4], 1, 1], "backward": 1}},
                {},
                r"pipeline: times.forward\[1\]: expected one number per stage: durations per",
            ),
            (
                {"memory": {"capacity": 9, "activation": [1, [1, 2, 3, 4], 1, 1]}},
                {},
                r"pipeline: memory.activation\[1\]: expected one number per stage: amounts per",
            ),
            (
                {"lengths": [1, 2, 3, 4]},
                {},
                "pipeline: lengths: expected none: lengths per",
            ),
            (
                {"placement": "bidirectional"},
                {"microbatches": [4, 5]},
                "pipeline: num_microbatches: expected an even number with bidirectional pipes",
            ),
            ({}, {"microbatches": []}, "microbatches: expected at least one number"),
            (
                {},
                {"microbatches": [0, 4]},
                r"microbatches\[0\]: expected a whole number >= 1, got 0",
            ),
            (
                {},
                {"heuristics": ["1f1c"]},
                'unknown heuristic "1f1c"; did you mean "1f1b"',
            ),
            ({}, {"heuristics": []}, "heuristics: expected at least one heuristic"),
            (
                {},
                {"heuristics": "1f1b"},
                'heuristics: expected .* in a list, got the text "1f1b"',
            ),
        ],
    )
    def test_bad_arguments(
        self, fields: dict[str, Any], arguments: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            measure_curve(pipeline(**fields), **{"microbatches": [4], **arguments})
