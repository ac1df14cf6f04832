"""A process of readers is served once, whatever its participants are; what comes again is counted."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.integration.configurations import Settings
from tests.integration.lab import Lab
from tests.integration.programs import Program

pytestmark = pytest.mark.dds

COUNT = 200


@dataclasses.dataclass
class Case:
    """Readers of one process, made in turn.

    Attributes:
        makes: commands of `readers_in_turn`; each one follows when the readers before have all they get.
        repeats: how many samples come again to each reader, in order.
        by_source: their order.
        lives: whether the writer lives.
        partitions: those of the writer.
    """

    makes: list[dict[str, Any]]
    repeats: list[int]
    by_source: bool = False
    lives: bool = False
    partitions: tuple[str, ...] = ("stock",)


def apart(count: int, **options: Any) -> dict[str, Any]:
    return {"make": count, "apart": True, **options}


ONE: dict[str, Any] = {"make": 1}
BOTH = ("stock_a", "stock_b")
CASES = {
    "three participants": Case([apart(3)], [0, 0, 0]),
    "three participants, by source": Case([apart(3)], [0, 0, 0], by_source=True),
    "three participants, one after the other": Case([apart(3, pause_s=0.05)], [0, 0, 0]),
    "three participants of a living writer": Case([apart(3)], [0, 0, 0], lives=True),
    "three readers in turn": Case([ONE] * 3, [2 * COUNT, COUNT, 0]),
    "three readers in turn, by source": Case([ONE] * 3, [2 * COUNT, COUNT, 0], by_source=True),
    "three readers in turn of a living writer": Case([ONE] * 3, [2 * COUNT, COUNT, 0], lives=True),
    "three readers in turn of a living writer, by source": Case(
        [ONE] * 3, [0, 0, 0], by_source=True, lives=True
    ),
    "two participants in turn": Case([apart(1), apart(1)], [COUNT, 0]),
    "one partition, then both": Case(
        [{**ONE, "partitions": BOTH[:1]}, {**ONE, "partitions": BOTH}], [COUNT, 0], partitions=BOTH[:1]
    ),
    "both partitions and a pattern, at once": Case(
        [{**ONE, "partitions": BOTH, "next": True}, apart(1, partitions=["stock_*"])],
        [0, 0],
        partitions=BOTH[:1],
    ),
}


def serve(lab: Lab, number: int, case: Case) -> Program:
    """Let the readers of a case come; returns their process once each has everything."""
    options: dict[str, Any] = {"topic": f"T{number}", "by_source": case.by_source}
    steps = [{"count": COUNT, "time": 1_000, "partitions": list(case.partitions)}]
    before = lab.seen.stored("n1")
    writer = lab.program("writer", steps=steps, **options)
    writer.answer("done")
    if not case.lives:
        assert writer.end() == 0
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == before + COUNT * len(case.partitions))
    process = lab.program("readers_in_turn", **options)
    process.answer("ready")
    made = 0
    for command in case.makes:
        process.tell(**{**command, "partitions": list(command.get("partitions", ("stock",)))})
        process.answer("made")
        made += command["make"]
        if "next" not in command:
            for which in range(made):
                assert has(process, which)[0] == COUNT
            wait_ended(lab)
    return process


def has(process: Program, which: int) -> list[int]:
    process.tell(want=[which, COUNT])
    found: list[int] = process.answer("has")
    return found


def wait_ended(lab: Lab) -> None:
    """Until every delivery that began has ended, and none begins for a while."""

    def ended() -> bool:
        events = [one["event"] for one in lab.trace("n1", "deliver.started", "deliver.finished")]
        return events.count("deliver.started") == events.count("deliver.finished")

    lab.seen.wait_for("all deliveries have ended", ended)


def repeated(lab: Lab) -> int:
    """What the node shows; the sum of what it shows for each reader that lives."""
    shown = lab.seen.node("n1")
    return shown.counters["repeated"] if shown else 0


def check_case(lab: Lab, number: int, case: Case) -> None:
    """Readers get again what the case says, and the node counts that."""
    before = repeated(lab)
    process = serve(lab, number, case)
    seen = [has(process, which)[1] for which in range(len(case.repeats))]
    assert seen == case.repeats
    lab.seen.wait_for("it is counted", lambda: repeated(lab) - before >= sum(case.repeats))
    shown = lab.seen.node("n1")
    assert shown is not None
    of_topic = [one.counts.get("repeated", 0) for one in shown.deviations if one.topic == f"T{number}"]
    assert (repeated(lab) - before, sum(of_topic)) == (sum(seen), sum(seen))
    assert process.end() == 0


def test_a_process_is_served_once_and_what_comes_again_is_counted(lab: Lab) -> None:
    lab.start_complete("n1", settings=Settings())
    for number, (name, case) in enumerate(CASES.items()):
        print(name)
        check_case(lab, number, case)
