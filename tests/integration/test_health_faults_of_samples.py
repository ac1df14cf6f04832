"""More faults on real nodes: samples that are too old, readers that see something else, a deaf watcher.

`make faults` runs them, with those of `test_health_faults`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

from tests.integration.clinic import BUSY_S, ENDS_S, TOLD_S, Clinic, check_fault, report, watched
from tests.integration.configurations import Settings
from tests.integration.lab import Lab
from tests.integration.programs import Program

pytestmark = [
    pytest.mark.dds,
    pytest.mark.skipif("OSPLTOOL_FAULTS" not in os.environ, reason="`make faults` runs it"),
]

NAMES = ("n1", "n2", "n3")
KEYS = 5
PAUSE_S = 0.005
MOST_ROUNDS = 8
HOUR_NS = 3_600_000_000_000


def start_alone(lab: Lab) -> None:
    for name, priority in (("n1", 200), ("n2", 100)):
        lab.configure(name, Settings().with_priority(priority))
    lab.start("n1")
    lab.seen.wait_for("n1 is complete", lambda: lab.seen.are_complete("n1"))


def test_samples_that_come_too_late_to_a_node_that_nobody_can_be_compared_with(lab: Lab) -> None:
    """Beside a fellow with an equal set they are no loss: then no set keeps them."""
    start_alone(lab)
    with watched(Clinic(lab, ("n1",), bare=True)) as clinic:
        now_ns = time.time_ns()
        behind = lab.program("writer", steps=[{"count": 1, "first": KEYS, "time": now_ns - HOUR_NS}])
        behind.answer("done")
        lab.write({"count": KEYS, "time": now_ns})

        def write_late() -> None:
            behind.tell(steps=[{"count": KEYS, "time": now_ns - HOUR_NS}])
            behind.answer("done")

        def told() -> list[str]:
            return [one.document["what"] for one in clinic.open if one.code == "DUL-CAPTURE-LOSS"]

        write_late()
        told_s = clinic.check("DUL-CAPTURE-LOSS", "n1")
        os.kill(lab.pid("n1"), signal.SIGSTOP)
        clinic.wait("it is last known", lambda: "last known at" in str(told()), TOLD_S + BUSY_S)
        os.kill(lab.pid("n1"), signal.SIGCONT)
        clinic.wait("the node is back", lambda: len(clinic.open) == len(told()), ENDS_S + BUSY_S)
        assert "last known at" not in str(told())
        lab.start("n2")
        report("samples come too late", told_s, clinic.check_well())
        assert clinic.times("DUL-CAPTURE-LOSS") == 1


def test_writers_that_write_the_same_instances_at_the_same_time_lose_nothing(lab: Lab) -> None:
    """Some samples of each come after newer ones of the other, to every node."""
    lab.start_three()
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:
        clinic.check_well()
        writers = [lab.program("writer", readers=3) for _ in range(2)]
        for writer in writers:
            writer.answer("done")

        def are_old() -> bool:
            return any(shown.counters["too_old"] for name in NAMES if (shown := lab.seen.node(name)))

        for _ in range(MOST_ROUNDS):  # whether two writers overtake each other is chance
            for writer in writers:
                turns = range(round(TOLD_S / PAUSE_S))
                writer.tell(steps=[{"first": turn % KEYS, "every_s": PAUSE_S} for turn in turns])
            for writer in writers:
                writer.answer("done")
            with contextlib.suppress(AssertionError):
                lab.seen.wait_for("some came after newer ones", are_old, 2.0)
                break
        assert are_old()
        assert not any(group.lost for name in NAMES for group in lab.seen.groups(name))
        clinic.check_well()
        assert [one for one in clinic.told.values() if one.document["severity"] != "notice"] == []


def test_a_reader_that_sees_something_else_than_the_set(lab: Lab) -> None:
    """One reader of the process has no room to keep the instances of a living writer ALIVE."""
    start_alone(lab)
    writer = lab.program("writer", topic="Reading", by_source=True, steps=[{"count": KEYS, "time": 1_000}])
    writer.answer("done")
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == KEYS)
    readers = [
        {"name": "bounded", "topic": "Reading", "resources": (-1, KEYS - 1, -1)},
        {"name": "free", "topic": "Reading"},
    ]
    with watched(Clinic(lab, ("n1",), bare=True)) as clinic:
        clinic.check_well()

        def read() -> None:
            reader.append(lab.program("timelines", readers=readers, takes=True))

        reader: list[Program] = []
        check_fault(
            clinic,
            "a reader deviates from the set",
            "DUL-READER-DEVIATES",
            "n1",
            read,
            lambda: reader[0].end(),
        )


def test_what_a_watcher_cannot_read(lab: Lab) -> None:
    """Somebody writes nonsense on the topic of the views, in the name of a node."""
    lab.start_three()
    ids = [shown.id for name in NAMES if (shown := lab.seen.node(name))]
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:
        clinic.check_well()
        hostile = lab.program("hostile", tag="node", nodes=ids)
        hostile.answer("ready")

        def is_told() -> bool:
            return ("DUL-MESSAGES-LOST", "watcher") in [(one.code, one.who) for one in clinic.open]

        hostile.tell(send="views")
        hostile.answer("sent")
        told_s = clinic.wait("it is told", is_told, TOLD_S + BUSY_S)
        (found,) = [one.document for one in clinic.open if one.code == "DUL-MESSAGES-LOST"]
        assert found["severity"] == "notice"
        assert hostile.end() == 0
        ended_s = clinic.wait("it is over", lambda: not is_told(), ENDS_S + BUSY_S)
        assert clinic.times("DUL-MESSAGES-LOST") == 1
        clinic.check_well()
        report("a watcher cannot read", told_s, ended_s)
