"""Every way to ask a question says the same of the optimum, on random small cases."""

from __future__ import annotations

import json

import pytest

from tests.agreement.question import Question
from tests.agreement.questions import QUESTIONS


@pytest.mark.agreement
@pytest.mark.parametrize(
    ("question", "number"),
    [
        pytest.param(question, number, id=f"{question.name}-{number}")
        for question in QUESTIONS
        for number in range(question.count)
    ],
)
def test_all_ways_agree(question: Question, number: int) -> None:
    case = question.case(number)
    lines = question.disagreements(case)
    assert not lines, "\n".join([*lines, json.dumps(case)])


def test_every_question_has_a_name_of_its_own_and_several_ways() -> None:
    assert len({question.name for question in QUESTIONS}) == len(QUESTIONS)
    assert all(len(question.ways) > 1 for question in QUESTIONS)
