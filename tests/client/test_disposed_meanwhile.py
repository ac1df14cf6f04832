"""What is disposed while a DurableWriter is away does not come back when it hands over what it kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.client.applications import done
from tests.client.places import ClientLab
from tests.integration.configurations import Settings

pytestmark = pytest.mark.dds

COUNT = 20
AT_ONCE: dict[str, Any] = {"cleanup_ns": 0}
"""QoS of the topics: a disposed instance may be forgotten at once."""


def dispose(
    lab: ClientLab, *, count: int = COUNT, topic: str = "", readers: int = 2, prefix: Sequence[str] = ()
) -> None:
    """Another application disposes these instances, gives them up, and ends."""
    now_ns = time.time_ns()
    lab.write(
        {"op": "dispose", "count": count, "time": now_ns},
        {"op": "unregister", "count": count, "time": now_ns + count},
        topic=topic,
        readers=readers,
        prefix=prefix,
        **AT_ONCE,
    )


def wait_until_forgotten(lab: ClientLab, *names: str, prefix: Sequence[str] = ()) -> None:
    """Wait until nodes have forgotten an instance that was disposed after all before, of another topic."""
    dispose(lab, count=1, topic="Clock", readers=len(names), prefix=prefix)

    def is_forgotten() -> bool:
        return all(
            any(each["group"].endswith("Clock") for each in lab.trace(name, "purge.done")) for name in names
        )

    lab.seen.wait_for("a later dispose is forgotten", is_forgotten)


def check_none_alive(lab: ClientLab, prefix: Sequence[str] = ()) -> None:
    """A late reader finds no instance alive."""
    assert alive(lab, prefix) == 0


def alive(lab: ClientLab, prefix: Sequence[str] = ()) -> int:
    """How many instances a late reader finds alive, or without writers."""
    before = len(lab.deliveries())
    reader = lab.reader(prefix=prefix, **AT_ONCE)
    lab.wait_delivered(before + 1)
    states = reader.tally()["states"]
    return int(states.get("alive", 0) + states.get("no writers", 0))


def forgets(lab: ClientLab, *names: str) -> int:
    """How many instances of the topic the nodes have forgotten."""
    return sum(
        int(each["instances"])
        for name in names
        for each in lab.trace(name, "purge.done")
        if each["group"].endswith("Reading")
    )


@pytest.mark.parametrize("restarts", [False, True], ids=["", "all_nodes_restart"])
def test_a_journal_brings_nothing_back(lab: ClientLab, tmp_path: Path, *, restarts: bool) -> None:
    names = lab.start_two()
    journal = str(tmp_path / "journal")
    first = lab.client_program("keeper", nodes=3, journal=journal, **AT_ONCE)  # two are never three
    done(first, matched=2, write=[0, COUNT])
    lab.seen.wait_for("they are stored", lambda: all(lab.seen.stored(name) == COUNT for name in names))
    first.kill()
    dispose(lab)
    if restarts:
        lab.stop(*names)
        lab.start(*names)
        lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete(*names))
    wait_until_forgotten(lab, *names)
    again = lab.client_program("keeper", nodes=2, journal=journal, **AT_ONCE)
    assert done(again, matched=2, flush=30) == {}
    assert done(again, counters=1)["counters"]["recovered"] == COUNT
    check_none_alive(lab)
    assert again.end() == 0
    lab.seen.wait_for("they are forgotten at last", lambda: forgets(lab, *names) == 2 * COUNT)
    lab.seen.wait_for("nothing is left", lambda: all(lab.seen.samples(name) == 0 for name in names))


def test_more_than_one_question_has_room_for_stays_disposed(lab: ClientLab, tmp_path: Path) -> None:
    """One of two nodes is up; a question has 4,096 names, and the disposes come behind these."""
    count, journal = 3_000, str(tmp_path / "journal")
    lab.start_one()
    lab.configure("n2", Settings().with_priority(50))
    first = lab.client_program("keeper", nodes=2, journal=journal, sync=False, **AT_ONCE)
    done(first, matched=1, write=[0, count], dispose=[0, count])
    lab.seen.wait_for("they are stored", lambda: lab.seen.stored("n1") == 2 * count)
    first.kill()
    wait_until_forgotten(lab, "n1")
    again = lab.client_program("keeper", nodes=2, journal=journal, sync=False, **AT_ONCE)
    said = done(again, matched=1, flush=5)
    assert said["error"] == "NotStored", said
    assert done(again, counters=1)["counters"]["handed_over"] == 0
    check_none_alive(lab)
    lab.start("n2")
    assert done(again, flush=60) == {}
    assert again.end() == 0
    lab.seen.wait_for("they are forgotten at last", lambda: forgets(lab, "n1", "n2") == 2 * count)


def test_confirmed_and_forgotten_is_not_called_never_arrived(lab: ClientLab) -> None:
    lab.start_one()
    writer = lab.client_program("keeper", **AT_ONCE)
    done(writer, matched=1, write=[0, COUNT], dispose=[0, COUNT], unregister=[0, COUNT])
    assert done(writer, flush=20) == {}
    lab.seen.wait_for("they are forgotten", lambda: forgets(lab, "n1") == COUNT)
    for restarts in (False, True):
        if restarts:
            lab.kill("n1")
            lab.start("n1")
            lab.seen.wait_for("n1 is complete again", lambda: lab.seen.are_complete("n1"))
        said = done(writer, ask=0, timeout=1)
        assert [each[1] for each in said["missing"]] == ["CANNOT_TELL"], said


def test_a_pending_sample_of_the_future_does_not_end_the_wait_for_those_of_now(
    lab: ClientLab, tmp_path: Path
) -> None:
    names = lab.start_two()
    journal = str(tmp_path / "journal")
    first = lab.client_program("keeper", nodes=3, journal=journal, **AT_ONCE)
    done(first, matched=2, write=[100, 1], age_s=-3600)
    done(first, write=[0, COUNT])
    lab.seen.wait_for("they are stored", lambda: all(lab.seen.stored(name) > COUNT for name in names))
    first.kill()
    dispose(lab)
    wait_until_forgotten(lab, *names)
    again = lab.client_program("keeper", nodes=2, journal=journal, **AT_ONCE)
    assert done(again, matched=2, flush=30) == {}
    assert alive(lab) == 1, "that of the future"
