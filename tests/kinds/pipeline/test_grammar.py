"""The words of programs: what PyTorch writes is read to the same text, all else is refused."""

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.kinds.pipeline.grammar import (
    Action,
    Communication,
    Overlap,
    actions_of,
    parse_step,
)

WORDS = {
    "0F3": Action(0, "F", 3),
    "12B0": Action(12, "B", 0),
    "1I2": Action(1, "I", 2),
    "1W2": Action(1, "W", 2),
    "1SEND_F3": Communication(1, "SEND_F", 3),
    "1RECV_F3": Communication(1, "RECV_F", 3),
    "1SEND_B3": Communication(1, "SEND_B", 3),
    "1RECV_B3": Communication(1, "RECV_B", 3),
    "0UNSHARD": Communication(0, "UNSHARD"),
    "0RESHARD": Communication(0, "RESHARD"),
    "0REDUCE_GRAD": Communication(0, "REDUCE_GRAD"),
    "(0F4;7B0)OVERLAP_F_B": Overlap(Action(0, "F", 4), Action(7, "B", 0)),
}


@pytest.mark.parametrize("text", WORDS)
def test_words_are_read_and_written(text):
    assert parse_step(text) == WORDS[text]
    assert str(WORDS[text]) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "F0",
        "0F",
        "0X1",
        "0f1",
        "0F1x",
        "-1F0",
        "0SEND_F",
        "0UNSHARD1",
        "0F1;0B1",
        "(0F1)OVERLAP_F_B",
        "(0B1;0F1)OVERLAP_F_B",
        "(0F1;0I1)OVERLAP_F_B",
        "0F12345678",
        "0F\u0661",
    ],
)
def test_other_words_are_refused(text):
    with pytest.raises(InputError, match="expected an action such as"):
        parse_step(text)


def test_only_compute_steps_have_actions():
    pair = Overlap(Action(0, "F", 4), Action(7, "B", 0))
    assert list(actions_of(pair)) == [pair.forward, pair.backward]
    assert list(actions_of(Communication(0, "UNSHARD"))) == []
