from __future__ import annotations

import pytest

import ppsolve
from ppsolve.models.core.problem import Problem
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import kind_of, lower
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.heuristic import Request
from ppsolve.solver.kinds.pipeline.actions import (
    Order,
    action_strings,
    orders_of,
    resolved,
    schedule_actions,
)
from ppsolve.solver.kinds.pipeline.grammar import Action, Overlap


def problem(*, split: bool = False) -> Problem:
    times = {"forward": 1, "backward_input": 1, "backward_weight": 1} if split else None
    return lower(
        PipelineInstance.parse(
            {
                "num_devices": 2,
                "num_microbatches": 2,
                "times": times or {"forward": 1, "backward": 2},
            }
        )
    )


def order(*texts: str) -> Order:
    return Order.of(Action(int(text[0]), text[1], int(text[2:])) for text in texts)


FIRST = order("0F0", "0F1", "0B0", "0B1")
SECOND = order("1F0", "1B0", "1F1", "1B1")


def test_actions_are_written_as_pytorch_writes_them() -> None:
    pair = Overlap(Action(0, "F", 130), Action(63, "B", 7))
    alone, written = Action(5, "I", 102), "(0F130;63B7)OVERLAP_F_B"
    orders = [
        Order.of([alone, pair]),
        Order.of([pair, alone, pair, pair]),
        Order.of([]),
    ]
    assert action_strings(orders) == [
        ["5I102", written],
        [written, "5I102", written, written],
        [],
    ]
    assert list(orders[1]) == [pair, alone, pair, pair]


def test_kinds_of_a_stage_are_run_by_index() -> None:
    assert list(map(str, Order.by_index(3, "FFBFB"))) == [
        "3F0",
        "3F1",
        "3B0",
        "3F2",
        "3B1",
    ]
    two_stages = Order.by_index([0, 1, 0, 1, 0], "FFIWI")
    assert list(map(str, two_stages)) == ["0F0", "1F0", "0I0", "1W0", "0I1"]
    assert list(map(str, Order.by_index([], ""))) == []


def test_pair_is_timed_as_its_forward_then_its_backward() -> None:
    forward, backward = Action(1, "F", 1), Action(1, "B", 0)
    paired = Order.of(
        [Action(1, "F", 0), Overlap(forward, backward), Action(1, "B", 1)]
    )
    alone = order("1F0", "1F1", "1B0", "1B1")
    schedules = [
        schedule_actions(problem(), [FIRST, second]) for second in (paired, alone)
    ]
    assert schedules[0].start.tolist() == schedules[1].start.tolist()


@pytest.mark.parametrize("split", [False, True])
def test_order_is_read_back_from_the_schedule(split: bool) -> None:
    schedule = schedule_actions(problem(split=split), [FIRST, SECOND])
    halves = {"B": ("I", "W")} if split else {}
    expected = [
        [
            str(a._replace(kind=kind))
            for a in device
            for kind in halves.get(a.kind, (a.kind,))
        ]
        for device in ([*FIRST], [*SECOND])
        if all(isinstance(a, Action) for a in device)
    ]
    assert action_strings(orders_of(schedule)) == expected


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (
            order("0F0", "0B0", "0B1"),
            "expected every op once in the orders, F0.1 is there not",
        ),
        (
            order("0F0", *map(str, FIRST)),
            "expected every op once in the orders, F0.0 is there more than once",
        ),
        (order("0F0", "0F2"), 'expected an action of this instance, got "0F2"'),
        (order("0F0", "3F0"), 'expected an action of this instance, got "3F0"'),
        (order("0F0", "0W0"), 'expected an action of this instance, got "0W0"'),
        (order("1F0"), '"1F0" is in the order of device 0, its device is 1'),
    ],
)
def test_wrong_orders_are_refused(first: Order, message: str) -> None:
    with pytest.raises(InputError) as caught:
        schedule_actions(problem(), [first, SECOND])
    assert str(caught.value) == message


def test_long_lists_of_missing_ops_are_cut() -> None:
    with pytest.raises(
        InputError, match=r"F0.0, F0.1, F1.0, F1.1, B0.0 and 3 more is there not"
    ):
        schedule_actions(problem(), [Order.of([]), Order.of([])])


def limited(capacity: float, **fields: object) -> PipelineInstance:
    times = {"forward": 2, "backward_input": 2, "backward_weight": 1}
    memory = {
        "capacity": capacity,
        "activation": 1,
        "released_by_backward_weight": 0.25,
    }
    document = {
        "num_devices": 2,
        "num_microbatches": 2,
        "times": times,
        "memory": memory,
    }
    return PipelineInstance.parse(document | fields)


def test_orders_overfill_a_pool_where_too_many_forwards_come_first() -> None:
    # Device 0 holds both micro-batches at its second forward, device 1 one at a time.
    for capacity, overfills in ((1, True), (1.75, True), (2, False)):
        shown = lower(limited(capacity))
        assert resolved(shown, [FIRST, SECOND]).overfills(shown) is overfills
    # Behind the first input-gradient backward a quarter is left.
    early = order("0F0", "0I0", "0F1", "0I1", "0W0", "0W1")
    for capacity, overfills in ((1, True), (1.25, False)):
        shown = lower(limited(capacity))
        assert resolved(shown, [early, SECOND]).overfills(shown) is overfills


@pytest.mark.parametrize(
    "chunks, placement", [(1, "linear"), (2, "interleaved"), (2, "vshape")]
)
def test_orders_overfill_where_the_checker_finds_too_much_memory(
    chunks: int, placement: str
) -> None:
    verdicts = set[bool]()
    for capacity in (1, 2, 3, 4, 6, 9):
        shape = {"num_devices": 3, "num_microbatches": 6, "stages_per_device": chunks}
        instance = limited(capacity, placement=placement, **shape)
        shown, kind = lower(instance), kind_of(instance)
        for heuristic in kind.heuristics_of(instance):
            if (
                heuristic.orders is None
                or kind.obstacle(heuristic, instance) is not None
            ):
                continue
            chains = resolved(shown, heuristic.orders(Request(instance, shown)))
            wrong = {
                violation.rule
                for violation in check_schedule(shown, chains.timed(shown))
            }
            assert wrong <= {"memory"}
            assert chains.overfills(shown) is bool(wrong)
            verdicts.add(bool(wrong))
    assert verdicts == {False, True}


def test_orders_leave_open_what_they_do_not_decide() -> None:
    # An op of length zero releases at the moment at which others acquire.
    times = {"forward": 0, "backward_input": 2, "backward_weight": 1}
    shown = lower(limited(1, times=times))
    assert not resolved(shown, [FIRST, SECOND]).overfills(shown)


def test_orders_are_read_off_the_schedule_where_no_actions_are_given():
    times = {"forward": 1, "backward": 2}
    instance = PipelineInstance(num_devices=2, num_microbatches=1, times=times)
    entry = ppsolve.simulate(instance, "gpipe").model_copy(update={"orders": None})
    kind = kind_of(instance)
    assert kind.order_lines(entry) == ["0F0,0B0", "1F0,1B0"]
    assert kind.order_lines(entry.model_copy(update={"schedule": None})) is None
