"""Ask the questions about new cases: ``python -m tests.agreement.run --seed 7 --times 10``."""

from __future__ import annotations

import argparse
import json
import sys

from tests.agreement.question import Question
from tests.agreement.questions import QUESTIONS


def ask(question: Question, count: int, seed: int) -> int:
    """Ask about so many cases, print each disagreement, and return how many cases have one."""
    wrong = 0
    for number in range(count):
        case = question.case(number, seed)
        try:
            lines = question.disagreements(case)
        except Exception as error:
            lines = [f"{type(error).__name__}: {error}"]
        if lines:
            wrong += 1
            print(f"{question.name}, seed {seed}, case {number}: {json.dumps(case)}")
            print(*(f"  {line}" for line in lines), sep="\n", flush=True)
    return wrong


def main() -> int:
    """Return 1 where two ways disagree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=0, help="of the cases; 0 is that of pytest"
    )
    parser.add_argument(
        "--times", type=float, default=1, help="so many times as many cases"
    )
    parser.add_argument("questions", nargs="*", help="names of questions [all]")
    options = parser.parse_args()
    total = 0
    for question in QUESTIONS:
        if options.questions and question.name not in options.questions:
            continue
        count = max(1, round(question.count * options.times))
        wrong = ask(question, count, options.seed)
        print(f"{question.name:24}{count:6} cases{wrong:6} disagreements", flush=True)
        total += wrong
    return min(total, 1)


if __name__ == "__main__":
    sys.exit(main())
