"""History of writers that live is ALIVE for late joiners, until these writers unregister it or end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.configurations import Settings
from tests.integration.lab import Lab
from tests.integration.programs import Program
from tests.tables import table_rows

pytestmark = pytest.mark.dds

COUNT = 3
LOST_DELIVERER_S = 10.0
"""The lease of what a node gives with: after this readers lose a node that was killed."""
CASES = [(autodispose, by_source) for autodispose in (True, False) for by_source in (True, False)]


def options_of(case: tuple[bool, bool]) -> dict[str, Any]:
    topic = "T" + "".join("ny"[flag] for flag in case)
    return {"topic": topic, "autodispose": case[0], "by_source": case[1]}


def look(reader: Program) -> dict[str, dict[str, dict[str, Any]]]:
    reader.tell(look=True)
    found: dict[str, dict[str, dict[str, Any]]] = reader.answer("timelines")
    return found


def wait_states(reader: Program, wanted: Callable[[tuple[bool, bool]], str], timeout_s: float = 30.0) -> None:
    """Until the instances of each topic are in these states, one letter or two for each, in order."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = look(reader)
        states = {
            case: " ".join(each["state"] for _, each in sorted(found[options_of(case)["topic"]].items()))
            for case in CASES
        }
        if states == {case: wanted(case) for case in CASES}:
            return
        assert time.monotonic() < deadline, f"{states}; {found}"
        time.sleep(0.1)


def writers_of(lab: Lab, readers: int) -> list[Program]:
    """A writer for each case that stays; what it wrote is stored everywhere."""
    steps = [{"count": COUNT, "time": 1_000}]
    writers = [lab.program("writer", readers=readers, steps=steps, **options_of(case)) for case in CASES]
    for writer in writers:
        writer.answer("done")
    return writers


def late_reader(lab: Lab) -> Program:
    reader = lab.program("timelines", readers=[options_of(case) for case in CASES])
    reader.answer("ready")
    return reader


def one_node(lab: Lab) -> list[Program]:
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    writers = writers_of(lab, 1)
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == COUNT * len(CASES))
    return writers


def lost(case: tuple[bool, bool]) -> str:
    return "D" if case[0] else "NW"


@pytest.mark.parametrize("is_killed", [False, True], ids=["ends", "is killed, and another lives"])
def test_history_is_alive_until_its_writer_unregisters_it_or_ends(lab: Lab, is_killed: bool) -> None:
    writers = one_node(lab)
    others = [
        lab.program("writer", steps=[{"first": 9, "count": 1, "time": 1_000}], **options_of(case))
        for case in (CASES if is_killed else ())
    ]
    for other in others:
        other.answer("done")
    more = " A" if is_killed else ""
    readers = [late_reader(lab), late_reader(lab)]
    for reader in readers:
        wait_states(reader, lambda _: "A A A" + more)
    lab.wait_delivered(2 * len(CASES))  # what is written during a delivery can reach a reader twice
    for writer in writers:
        writer.tell(steps=[{"op": "unregister", "first": 0, "count": 1, "time": 2_000}])
        writer.tell(steps=[{"first": 1, "count": 1, "time": 3_000}])
        for _ in range(2):
            writer.answer("done")
    for reader in readers:
        wait_states(reader, lambda case: f"{lost(case)} A A{more}")
    for writer in writers:
        writer.kill() if is_killed else writer.end()
    for reader in readers:
        wait_states(reader, lambda case: " ".join([lost(case)] * 3) + more)
        for case in CASES:
            seen = look(reader)[options_of(case)["topic"]]
            for key, written in (("0", ["S1000"]), ("1", ["S1001", "S3000"]), ("2", ["S1002"])):
                words = seen[key]["words"]
                if is_killed:  # the reader may lose the writer a moment before the node says what that means
                    words = [word for word in words if word != "NW" or lost(case) == "NW"]
                assert words == [*written, lost(case)], case
    lab.wait_delivered()
    wait_states(late_reader(lab), lambda case: " ".join([lost(case)] * 3) + more)


def test_an_iterator_over_alive_instances_gets_all_history_of_a_living_writer(lab: Lab) -> None:
    one_node(lab)
    for case in CASES:
        reader = lab.program("iterating", count=COUNT, **options_of(case))
        assert reader.answer("count") == COUNT


def test_an_instance_of_two_writers_is_alive_until_the_last_of_them_ends(lab: Lab) -> None:
    """For a late joiner, with autodispose: until the first of them ends."""
    first = one_node(lab)
    second = [
        lab.program("writer", steps=[{"count": COUNT, "time": 2_000}], depth=0, **options_of(case))
        for case in CASES
    ]
    for writer in second:
        writer.answer("done")
    reader = late_reader(lab)
    wait_states(reader, lambda _: "A A A")
    for writer in first:
        assert writer.end() == 0
    ended = sum(COUNT for autodispose, _ in CASES if autodispose)
    lab.seen.wait_for(
        "they have ended in the sets",
        lambda: sum(int(each["instances"]) for each in lab.trace("n1", "writer.disposed")) == ended,
    )
    other = late_reader(lab)
    wait_states(other, lambda case: "D D D" if case[0] else "A A A")
    wait_states(reader, lambda case: "D D D" if case[0] else "A A A")
    for writer in second:
        assert writer.end() == 0
    for each in (reader, other):
        wait_states(each, lambda case: " ".join([lost(case)] * 3))


def test_who_takes_over_from_a_node_that_stops_keeps_instances_alive(lab: Lab) -> None:
    names = lab.start_three()
    writers_of(lab, len(names))
    held = COUNT * len(CASES)
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(name) == held for name in names))
    reader = late_reader(lab)
    wait_states(reader, lambda _: "A A A")
    lab.wait_delivered(len(CASES))
    assert lab.stop("n1") == [0]
    # The successor registers before the node that stops is gone; by source time its samples are refused.
    deadline = time.monotonic() + 30.0
    while True:
        words = {case: look(reader)[options_of(case)["topic"]]["0"]["words"] for case in CASES}
        if all(each == ["S1000"] if case[1] else each == ["S1000"] * 2 for case, each in words.items()):
            break
        assert time.monotonic() < deadline, words
        time.sleep(0.1)
    wait_states(reader, lambda _: "A A A")


def test_who_takes_over_from_a_node_that_is_killed_keeps_instances_alive(lab: Lab) -> None:
    names = lab.start_three()
    writers = writers_of(lab, len(names))
    held = COUNT * len(CASES)
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(name) == held for name in names))
    reader = late_reader(lab)
    wait_states(reader, lambda _: "A A A")
    lab.wait_delivered(len(CASES))
    killed = time.monotonic()
    lab.kill("n1")
    # By order of reception the newest sample comes once more, from who has taken over.
    deadline = killed + 30.0
    while True:
        found = look(reader)
        taken_over = [found[options_of(case)["topic"]]["0"]["words"] for case in CASES if not case[1]]
        if all(words == ["S1000"] * 2 for words in taken_over):
            break
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    assert time.monotonic() - killed < LOST_DELIVERER_S, "taken over before readers lose the one that is gone"
    # The reader gives the killed node's writers up only later; the writers of the other one then stand in.
    while time.monotonic() < killed + LOST_DELIVERER_S + 3.0:
        for each in look(reader).values():
            assert [one["state"] for one in each.values()] == ["A"] * COUNT
        time.sleep(0.5)
    for case in CASES:
        words = look(reader)[options_of(case)["topic"]]["0"]["words"]
        assert words == (["S1000"] if case[1] else ["S1000"] * 2), case
    for writer in writers:
        assert writer.end() == 0
    wait_states(reader, lambda case: " ".join([lost(case)] * 3))


@pytest.mark.parametrize("strength", [0, -3])
def test_the_original_writer_owns_an_instance_before_the_one_that_keeps_it_alive(
    lab: Lab, strength: int
) -> None:
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    options: dict[str, Any] = {"exclusive": True, "strength": strength, "topic": "Owned"}
    writer = lab.program("writer", steps=[{"count": COUNT, "time": 1_000}], **options)
    writer.answer("done")
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == COUNT)
    reader = lab.program("timelines", readers=[options])
    reader.answer("ready")

    def wait_words(wanted: list[list[str]]) -> None:
        deadline = time.monotonic() + 30.0
        while True:
            found = look(reader)["Owned"]
            if [found.get(str(number), {"words": []})["words"] for number in range(COUNT)] == wanted:
                assert all(each["state"] == "A" for each in found.values())
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    wait_words([["S1000"], ["S1001"], ["S1002"]])
    writer.tell(steps=[{"first": 0, "count": 2, "time": 2_000}])
    writer.answer("done")
    wait_words([["S1000", "S2000"], ["S1001", "S2001"], ["S1002"]])


LATE = {
    "lives, and has not unregistered the instance": (
        "`ALIVE`: `take_iter`, `read_iter`, `take_next` and every condition on ALIVE get it"
    ),
    "has disposed it": "`NOT_ALIVE_DISPOSED`",
    "has unregistered it": "`NOT_ALIVE_NO_WRITERS`, or disposed if the unregister also disposed it",
    "has ended or is lost, with autodispose": (
        "`NOT_ALIVE_DISPOSED`, or nothing once it is [purged](durability-qos.md#cleaning-up)"
    ),
    "has ended or is lost, without autodispose": "`NOT_ALIVE_NO_WRITERS`",
}
"""The table of docs/readers.md, as `test_what_a_late_joiner_sees` tries it, row by row."""


def test_what_a_late_joiner_sees(lab: Lab) -> None:
    rows = table_rows("readers.md", "Instance states at a late joiner")
    assert [tuple(row.values()) for row in rows] == [*LATE.items()]
    lab.start_complete("n1", settings=Settings())
    sorts: list[dict[str, Any]] = [{"topic": f"T{ends:d}", "autodispose": ends} for ends in (True, False)]

    def write(*steps: dict[str, Any]) -> list[Program]:
        writers = [lab.program("writer", steps=[*steps], **sort) for sort in sorts]
        for writer in writers:
            writer.answer("done")
        return writers

    def check(*wanted: str) -> None:
        """What late joiners see of instances 0, 1 and so on: with autodispose, and without."""
        program = lab.program("timelines", readers=sorts)
        program.answer("ready")
        deadline = time.monotonic() + 30.0
        while True:
            found = look(program)
            seen = [[found[f"T{ends:d}"].get(str(at), {}).get("state") for ends in (1, 0)] for at in range(5)]
            if all(
                "/".join(map(str, one)) in each.split(" or ") for one, each in zip(seen, wanted, strict=True)
            ):
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    living = write(
        {"count": 3, "time": 1_000},
        {"op": "dispose", "first": 1, "time": 2_000},
        {"op": "unregister", "first": 2, "time": 2_000},
    )
    for writer in write({"first": 3, "time": 1_000}):
        assert writer.end() == 0
    for writer in write({"first": 4, "time": 1_000}):
        writer.kill()
    ended = "D/NW or None/NW"
    check("A/A", "D/D", "D/NW", ended, ended)
    lab.stop("n1")
    lab.start_complete("n1")
    check("A/A", "D/D", "D/NW", ended, ended)
    for writer in living:
        assert writer.end() == 0
