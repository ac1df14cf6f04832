"""Whether two nodes were aligned meanwhile is found as by looking at every alignment."""

from __future__ import annotations

import random

from ospltool.trace.meaning.alignments import AlignmentStep, TracedAlignment
from ospltool.trace.meaning.lines import NumberedLines, RecordPlace
from ospltool.trace.rules.set_changes import Applied, _ByStart, _given_ns


def line(lines: NumberedLines, time_ns: int) -> int:
    return lines.add(RecordPlace("n1", "file", time_ns, time_ns, "text"))


def test_alignments_between_two_times_are_found() -> None:
    dice = random.Random(18)
    answers = {True: 0, False: 0}
    for _ in range(2_000):
        some, lines = [], NumberedLines()
        for number in range(dice.randrange(8)):
            one = TracedAlignment(number, "p.T", "1", "2", "", lines)
            begun = dice.randrange(20)
            one.note(AlignmentStep.REQUESTED, line(lines, begun))
            if dice.random() < 0.7:  # aligners' clocks may be behind
                one.note(AlignmentStep.SENT, line(lines, begun + dice.randrange(-3, 6)))
            some.append(one)
        own = tuple(one for one in some if dice.random() < 0.3)
        applied = Applied(("n1", 1), "p.T", "REPLACE", 0, dice.randrange(25), own)
        since = dice.randrange(20)
        expected = any(
            since < (one.start_ns or 0) and _given_ns(one) < applied.time_ns and one not in own
            for one in some
        )
        assert _ByStart(some).any_between(since, applied) == expected
        answers[expected] += 1
    assert min(answers.values()) > 200
