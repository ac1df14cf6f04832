"""More faults on real nodes: of masters, of sets that evolved apart, and of nodes that stay incomplete.

`make faults` runs them, with those of `test_health_faults`. Two masters are part of DUL-PARTIAL-MESH while
the two do not hear each other; DUL-TWO-MASTERS is an incident of its own if they do and none gives way.
"""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.integration import hanging
from tests.integration.clinic import BUSY_S, ENDS_S, TOLD_S, Clinic, check_fault, report, watched
from tests.integration.configurations import Settings, Space
from tests.integration.hanging import hooked
from tests.integration.hosts import HostsLab, hosts_lab
from tests.integration.lab import Lab
from tests.integration.test_health_faults_in_time import patient

pytestmark = [
    pytest.mark.dds,
    pytest.mark.skipif("OSPLTOOL_FAULTS" not in os.environ, reason="`make faults` runs it"),
]

__all__ = ["patient"]

NAMES = ("n1", "n2", "n3")
IGNORE = Settings(spaces=(Space(merge=(("Ignore", "*"),)),))
LONG_S = 30.0
MANY = 20_000
SLOW_S = 8.0
"""Less than what a thread may take for one piece of work, 10 s."""

WIRE = f"""
import os, pathlib, threading
from engine.dds.bulk import BulkSender
send, slow = BulkSender.send, pathlib.Path(os.environ["WIRE_DIRECTORY"], "slow")
def on_a_slow_wire(self, *arguments):
    for _ in range({round(SLOW_S * 20)}):
        if not slow.exists():
            break
        threading.Event().wait(0.05)
    return send(self, *arguments)
BulkSender.send = on_a_slow_wire
"""


def on_a_slow_wire(directory: Path) -> dict[str, str]:
    """The environment of a node that sends each batch of a set late, while there is a file `slow`."""
    return hooked(directory, WIRE, "WIRE_DIRECTORY")


ELECTION = """
import os, pathlib
from engine.core import mastership
decide, held = mastership._decide, pathlib.Path(os.environ["ELECTION_DIRECTORY"], "held")
def held_up(context, state, now):
    is_self = state.following is not None and state.following.node == context.node
    return state.decision if held.exists() and is_self else decide(context, state, now)
mastership._decide = held_up
"""


def with_an_election_held_up(directory: Path) -> dict[str, str]:
    """The environment of a node that elects nobody new as long as a file `held` exists."""
    return hooked(directory, ELECTION, "ELECTION_DIRECTORY")


def names_of(clinic: Clinic) -> list[tuple[str, str]]:
    return [(one.code, one.who) for one in clinic.open if one.document["severity"] != "notice"]


def told(clinic: Clinic, code: str, who: str) -> bool:
    return (code, who) in [(one.code, one.who) for one in clinic.open]


def is_over(clinic: Clinic, code: str) -> bool:
    return code not in [one.code for one in clinic.open]


def test_an_election_that_waits_for_the_vote_of_a_node_that_stands_still(patient: Lab) -> None:
    """Its vote is awaited until its heartbeat or its lease expires; both take long here."""
    names = patient.configure_three(dataclasses.replace(Settings(), expiry_s=LONG_S))
    patient.start(*names)
    patient.seen.wait_for("all are complete", lambda: patient.seen.are_complete(*names))
    with watched(Clinic(patient, names, copies=3)) as clinic:
        clinic.check_well()
        pid = patient.pid("n3")
        os.kill(pid, signal.SIGSTOP)
        patient.stop("n1")
        told_s = clinic.wait("it is told", lambda: told(clinic, "DUL-NO-MASTER", "stock"), TOLD_S + BUSY_S)
        os.kill(pid, signal.SIGCONT)
        ended_s = clinic.wait("it is over", lambda: is_over(clinic, "DUL-NO-MASTER"), ENDS_S + BUSY_S)
        patient.start("n1")
        clinic.check_well()
        assert clinic.times("DUL-NO-MASTER") == 1
        report("an election that waits", told_s, ended_s)


def test_a_node_that_stands_still_while_all_still_wait_for_it(patient: Lab) -> None:
    """Neither its heartbeat nor its lease has expired: it is silent, and not gone."""
    names = patient.configure_three(dataclasses.replace(Settings(), expiry_s=LONG_S))
    patient.start_complete(*names)
    with watched(Clinic(patient, names, copies=3)) as clinic:
        clinic.check_well()
        pid = patient.pid("n3")
        check_fault(
            clinic, "a node stands still", "DUL-NODE-SILENT", "n3",
            lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT),
        )  # fmt: skip


def test_a_node_that_is_not_complete_because_its_aligner_does_not_send(lab: Lab, tmp_path: Path) -> None:
    start_aligner(lab, hanging.environ(tmp_path), 500)
    with watched(Clinic(lab, NAMES[:2], copies=2)) as clinic:
        (tmp_path / "stream").touch()
        lab.start("n2")
        clinic.wait("it is told", lambda: told(clinic, "DUL-NOT-COMPLETE", "n2"), 60.0 + TOLD_S + BUSY_S)
        assert told(clinic, "DUL-NODE-STUCK", "n1")
        (tmp_path / "stream").unlink()
        report("not complete, after a minute", 0.0, clinic.check_well())
        assert clinic.times("DUL-NOT-COMPLETE") == 1


def test_an_alignment_that_stands_still(lab: Lab, tmp_path: Path) -> None:
    start_aligner(lab, on_a_slow_wire(tmp_path), MANY)
    with watched(Clinic(lab, NAMES[:2], copies=2)) as clinic:
        (tmp_path / "slow").touch()
        lab.start("n2")
        told_s = clinic.wait(
            "it is told", lambda: told(clinic, "DUL-ALIGN-STALLED", "n2"), 2 * SLOW_S + TOLD_S + BUSY_S
        )
        (tmp_path / "slow").unlink()
        report("an alignment stands still", told_s, clinic.check_well())
        assert clinic.times("DUL-ALIGN-STALLED") == 1


def start_aligner(lab: Lab, environ: Mapping[str, str], samples: int) -> None:
    """Start n1 in this environment and write that many samples; configure n2 but do not start it."""
    lab.configure("n1", Settings().with_priority(200))
    lab.configure("n2", Settings().with_priority(100))
    lab.start("n1", environ=environ)
    lab.seen.wait_for("n1 is complete", lambda: lab.seen.are_complete("n1"))
    lab.write({"count": samples, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == samples)


# Several hosts.


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[HostsLab]:
    """n1 and n2, and a host for the watcher, which hears both."""
    with hosts_lab(tmp_path, "abc", multicast="false") as made:
        yield made


def start_pair(pair: HostsLab, settings: Settings) -> None:
    for name, priority in (("n1", 200), ("n2", 100)):
        pair.lab.configure(name, settings.with_priority(priority))
    pair.start_seen("n1", "n2")


def watching_pair(pair: HostsLab) -> Clinic:
    return Clinic(pair.lab, NAMES[:2], copies=2, prefix=pair.lab.prefixes["n3"])


def is_settled(pair: HostsLab, name: str) -> bool:
    """Whether a node is complete and has a fellow; nodes of two roles have two masters."""
    view = pair.views["n1"]
    shown = view.node(name)
    spaces = shown.name_spaces if shown else ()
    return bool(spaces) and all(one.complete for one in spaces) and bool(view.fellows(name, "approved"))


def written_apart(pair: HostsLab) -> None:
    """Part the two, and write to each of them what the other does not get."""
    pair.network.part("a", "b")
    view = pair.views["n1"]
    view.wait_for("n1 is alone", lambda: not view.fellows("n1", "approved"))
    for number, name in enumerate(("n1", "n2")):
        pair.lab.write({"first": 10 * number, "count": 5, "time": 1_000}, prefix=pair.lab.prefixes[name])


@pytest.mark.netns
def test_two_masters_are_part_of_the_incident_of_the_two_that_do_not_hear_each_other(pair: HostsLab) -> None:
    start_pair(pair, Settings())
    with watched(watching_pair(pair)) as clinic:
        clinic.check_well()

        def part() -> None:
            pair.network.part("a", "b")
            clinic.check("DUL-PARTIAL-MESH", "n1 and n2")
            with watched(watching_pair(pair)) as late:  # it tells once all signs have lasted
                (found,) = [one.document for one in late.open if one.code == "DUL-PARTIAL-MESH"]
            assert any("2 masters: " in sign for sign in found["signs"]), found["signs"]

        check_fault(
            clinic, "two masters", "DUL-PARTIAL-MESH", "n1 and n2", part,
            lambda: pair.network.reunite("a", "b"),
        )  # fmt: skip


@pytest.mark.netns
def test_two_masters_that_hear_each_other(pair: HostsLab, tmp_path: Path) -> None:
    """A split that has healed, and neither side gives way: only a fault of an election does that."""
    for name, priority in (("n1", 200), ("n2", 100)):
        pair.lab.configure(name, Settings().with_priority(priority))
    pair.views = {"n1": pair.lab.watch_from("n1")}
    pair.lab.start("n1", "n2", environ=with_an_election_held_up(tmp_path))
    pair.wait_complete("n1", "n1", "n2")
    with watched(watching_pair(pair)) as clinic:
        clinic.check_well()
        pair.network.part("a", "b")
        clinic.check("DUL-PARTIAL-MESH", "n1 and n2")
        (tmp_path / "held").touch()
        pair.network.reunite("a", "b")
        told_s = clinic.check("DUL-TWO-MASTERS", "stock")
        (found,) = clinic.open
        assert all(f"{name} (says {name})" in found.document["what"] for name in ("n1", "n2"))
        (tmp_path / "held").unlink()
        report("two masters that hear each other", told_s, clinic.check_well())
        assert clinic.times("DUL-TWO-MASTERS") == 1


@pytest.mark.netns
def test_sets_that_evolved_apart_and_that_nobody_merges(pair: HostsLab) -> None:
    start_pair(pair, IGNORE)
    with watched(watching_pair(pair)) as clinic:
        clinic.check_well()
        written_apart(pair)
        pair.network.reunite("a", "b")
        told_s = clinic.wait(
            "it is told", lambda: names_of(clinic) == [("DUL-SET-DIFFERS", "stock")], ENDS_S + BUSY_S
        )
        pair.lab.stop("n1", "n2")
        for name, priority in (("n1", 200), ("n2", 100)):
            pair.lab.configure(name, Settings().with_priority(priority))
        pair.lab.start("n1", "n2")
        report("sets that nobody merges", told_s, clinic.check_well())
        assert clinic.times("DUL-SET-DIFFERS") == 1


@pytest.mark.netns
@pytest.mark.parametrize("role", ["Depot", "Branch"])
def test_a_merge_that_takes_long(pair: HostsLab, tmp_path: Path, role: str) -> None:
    """Of two nodes of one role, and of two roles: what the other side sends comes slowly."""
    lab = pair.lab
    lab.configure("n1", Settings().with_priority(200))
    lab.configure("n2", dataclasses.replace(Settings().with_priority(100), role=role))
    pair.views = {"n1": lab.watch_from("n1")}
    lab.start("n1")
    lab.start("n2", environ=on_a_slow_wire(tmp_path))
    pair.views["n1"].wait_for("both are complete", lambda: all(is_settled(pair, name) for name in NAMES[:2]))
    with watched(watching_pair(pair)) as clinic:
        clinic.check_well()
        written_apart(pair)
        (tmp_path / "slow").touch()
        pair.network.reunite("a", "b")
        told_s = clinic.wait("it is told", lambda: told(clinic, "DUL-MERGE", "stock"), ENDS_S + BUSY_S)
        (found,) = [one.document for one in clinic.open if one.code == "DUL-MERGE"]
        assert "merging by Merge" in found["what"]
        assert found["severity"] == "notice"
        (tmp_path / "slow").unlink()
        ended_s = clinic.wait("it is over", lambda: not clinic.open, ENDS_S + BUSY_S)
        report(f"a merge with role {role} takes long", told_s, ended_s)
        assert clinic.times("DUL-MERGE") == 1
