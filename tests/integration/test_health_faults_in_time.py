"""More faults on real nodes: what is told while masters change, and heartbeats are late or nodes lost.

`make faults` runs them, with those of `test_health_faults`.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.dds.uri import cyclone_uri
from ospltool.cli.health import SETTLED_S
from tests.integration.clinic import BUSY_S, TOLD_S, Clinic, report, watched
from tests.integration.configurations import Settings
from tests.integration.conftest import own_domain
from tests.integration.hosts import hosts_lab
from tests.integration.lab import LEASE_S, Lab

pytestmark = [
    pytest.mark.dds,
    pytest.mark.skipif("OSPLTOOL_FAULTS" not in os.environ, reason="`make faults` runs it"),
]

NAMES = ("n1", "n2", "n3")
LONG_LEASE_S = 10.0
KILLED_S = 3.0
S = 1_000_000_000
MOST_EFFECTS = 3
"""With the old master, without one, and with the new one."""


def test_the_new_master_is_told_of_a_loss_that_was_told_before_its_election(lab: Lab) -> None:
    lab.start_three()
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:
        clinic.check_well()
        lab.kill("n1")
        clinic.check("DUL-NODE-GONE DUL-NODE-SILENT", "n1")
        effects = clinic.effects["n1"]
        took_s = clinic.wait("the new master is told", lambda: "n2 is master" in effects[-1], 15.0 + BUSY_S)
        clinic.listen(2 * SETTLED_S)
        assert "n2 is master, nothing lost" in effects[-1], effects
        assert len(effects) <= MOST_EFFECTS, effects
        lab.start("n1")
        report("the new master of a loss", took_s, clinic.check_well())


def test_a_node_that_died_while_the_watcher_stood_still_was_lost_then(lab: Lab) -> None:
    """It is dated by its last message if one waited, else before its fellows or the watcher missed it."""
    lab.start_three()
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:
        clinic.check_well()
        killing = threading.Timer(KILLED_S, lab.kill, ("n3",))
        killing.start()
        began_ns = time.time_ns()
        clinic.freeze(10.0)
        killing.join()
        took_s = clinic.check("DUL-NODE-GONE DUL-NODE-SILENT", "n3")
        (found,) = [one.document for one in clinic.open if one.who == "n3"]
        since_s = (found["since_ns"] - began_ns) / 1e9
        assert since_s >= KILLED_S if found["began_before"] else -0.5 < since_s < KILLED_S + 0.5
        report("a loss during a pause of the watcher", took_s, 0.0)


@pytest.mark.netns
@pytest.mark.parametrize("is_killed", [False, True], ids=["all run", "one died"])
def test_nodes_have_time_to_be_heard_when_the_link_of_the_watcher_is_back(
    tmp_path: Path, *, is_killed: bool
) -> None:
    """Shorter than the leases: the nodes are heard one after the other, each at its next message."""
    with hosts_lab(tmp_path, "abcd", multicast="spdp", lease_s=LONG_LEASE_S) as hosts:
        hosts.start_seen(*hosts.lab.configure_three())
        with watched(Clinic(hosts.lab, NAMES, copies=3, prefix=hosts.network.on("d"))) as clinic:
            clinic.check_well()
            hosts.network.cut("d")
            clinic.check("DUL-DOMAIN-LOST", "domain")
            clinic.listen(3.0)
            if is_killed:
                hosts.lab.kill("n3")
            hosts.network.heal("d")
            took_s = 0.0
            if is_killed:
                took_s = clinic.wait(
                    "n3 is told", lambda: "n3" in [one.who for one in clinic.open], TOLD_S + BUSY_S
                )
            else:
                clinic.check_well()
                clinic.listen(TOLD_S)
            lost = {one.who for one in clinic.told.values() if one.code.startswith("DUL-NODE-")}
            assert lost == ({"n3"} if is_killed else set())
            report("the link of the watcher is back", took_s, 0.0)


@pytest.mark.parametrize("pause_s", [2.5, 6.0])
def test_a_watcher_that_stood_still_blames_nobody(lab: Lab, pause_s: float) -> None:
    """Beyond two seconds nodes count as silent; after a lease Cyclone DDS has lost all of them, too."""
    lab.start_three()
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:
        clinic.check_well()
        clinic.freeze(pause_s)
        clinic.check_quiet(12.0)
        lab.kill("n3")
        report(
            "a loss after a pause of the watcher", clinic.check("DUL-NODE-GONE DUL-NODE-SILENT", "n3"), 0.0
        )


CUTS = {
    "it has no carrier": ("cut", "heal", "interface e0 has no carrier on the host of this watch, since "),
    "nobody sees why": (
        "split",
        "join",
        "the network of this watch is cut or changed, or every node was killed",
    ),
}


@pytest.mark.netns
@pytest.mark.parametrize("how", CUTS)
def test_a_watcher_whose_own_link_is_cut_blames_nobody(tmp_path: Path, how: str) -> None:
    begin, end, why = CUTS[how]
    with hosts_lab(tmp_path, "abcd", multicast="false") as hosts:
        hosts.start_seen(*hosts.lab.configure_three())
        network = hosts.network
        with watched(Clinic(hosts.lab, NAMES, copies=3, prefix=network.on("d"))) as clinic:
            clinic.check_well()

            def lost() -> tuple[str, str]:
                (found,) = [one for one in clinic.open if one.document["severity"] != "notice"]
                return found.document["what"], found.document["why"]

            getattr(network, begin)("d")
            told_s = clinic.check("DUL-DOMAIN-LOST", "domain")
            told = lost()
            assert told[0] == "this watch hears no node any more"
            assert why in told[1]
            clinic.listen(12.0)  # leases end meanwhile, and that changes nothing
            print([one.document for one in clinic.open])
            assert lost() == told
            getattr(network, end)("d")
            report(f"the watcher is cut off: {how}", told_s, clinic.check_well())
            print([(one.code, one.who) for one in clinic.told.values()])
            assert clinic.errors == [("DUL-DOMAIN-LOST", "domain")]


@pytest.mark.netns
def test_a_watcher_beside_a_node_tells_the_nodes_that_its_cut_link_hides_once(tmp_path: Path) -> None:
    with hosts_lab(tmp_path, "abc", multicast="false") as hosts:
        hosts.start_seen(*hosts.lab.configure_three())
        with watched(Clinic(hosts.lab, NAMES, copies=3, prefix=hosts.network.on("a"))) as clinic:
            clinic.check_well()

            def is_one() -> bool:
                told = [one.document for one in clinic.open if one.document["severity"] != "notice"]
                return [one["what"] for one in told] == ["n2 and n3 are out of reach of this watch"]

            hosts.network.cut("a")
            told_s = clinic.wait("both are told as one", is_one, TOLD_S + BUSY_S)
            clinic.listen(12.0)  # leases end meanwhile, and that changes nothing
            assert is_one()
            hosts.network.heal("a")
            report("a watcher beside a node is cut off", told_s, clinic.check_well(30.0))
            assert clinic.times("DUL-NODE-SILENT") == 1


def of_node(clinic: Clinic, name: str) -> list[dict[str, Any]]:
    """The documents of the incidents of the loss of a node, open and closed, oldest first."""
    return [
        one.document for one in clinic.told.values() if one.who == name and one.code.startswith("DUL-NODE-")
    ]


@pytest.mark.netns
def test_a_node_behind_a_cut_link_is_out_of_reach_and_gone_only_once_it_is_killed(tmp_path: Path) -> None:
    """A part of its fellows may not hear it, either; who looks late tells the same beginnings."""
    with hosts_lab(tmp_path, "abcd", multicast="spdp") as hosts:
        hosts.start_seen(*hosts.lab.configure_three())
        lab, network = hosts.lab, hosts.network
        with watched(Clinic(lab, NAMES, copies=3, prefix=network.on("d"))) as clinic:
            clinic.check_well()
            for other in ("c", "d"):
                network.part("b", other)

            def is_told(*told: tuple[str, str]) -> bool:
                return {*told} == {(one.code, one.who) for one in clinic.open}

            cut, mesh = ("DUL-NODE-SILENT", "n2"), ("DUL-PARTIAL-MESH", "n2 and n3")
            told_s = clinic.wait("both are told", lambda: is_told(cut, mesh), TOLD_S + BUSY_S)
            assert {form for forms in clinic.forms.values() for form in forms} == {cut, mesh}
            with watched(Clinic(lab, NAMES, copies=3, prefix=network.on("d"))) as late:
                late.wait("it is told late", lambda: mesh in [(one.code, one.who) for one in late.open], 15.0)
                since_ns = [
                    one.document["since_ns"]
                    for each in (clinic, late)
                    for one in each.open
                    if one.code == mesh[0]
                ]
                assert since_ns[0] == since_ns[1]
            killed_ns = time.time_ns()
            lab.kill("n2")
            clinic.wait(
                "it is gone", lambda: ("DUL-NODE-GONE", "n2") in [(one.code, one.who) for one in clinic.open],
                TOLD_S + BUSY_S,
            )  # fmt: skip
            before, gone = of_node(clinic, "n2")
            assert before["what"] == "n2 is out of reach of this watch, then gone"
            assert abs(gone["since_ns"] - killed_ns) < 1e9
            assert gone["why"].startswith(
                "cause unknown: link to 10.77.0.2 cut, host down, or process killed"
            )
            assert "`ping 10.77.0.2`" in gone["next"]
            for other in ("c", "d"):
                network.reunite("b", other)
            lab.start("n2")
            report("killed behind a cut link", told_s, clinic.check_well(30.0))


FLAPS = 4


@pytest.mark.netns
def test_a_link_that_is_cut_again_and_again_is_as_many_losses_each_as_long_as_it_was(tmp_path: Path) -> None:
    """Short cuts before them make heartbeats late, which is no beginning of a loss."""
    with hosts_lab(tmp_path, "abcd", multicast="spdp") as hosts:
        hosts.start_seen(*hosts.lab.configure_three())
        with watched(Clinic(hosts.lab, NAMES, copies=3, prefix=hosts.network.on("d"))) as clinic:
            clinic.check_well()
            cuts: list[tuple[int, int]] = []
            for cut_s, heal_s in [(1.0, 1.0)] * 3 + [(3.5, 3.5)] * FLAPS:
                began_ns = time.time_ns()
                hosts.network.cut("b")
                clinic.listen(cut_s)
                hosts.network.heal("b")
                cuts.append((began_ns, time.time_ns()))
                clinic.listen(heal_s)
            clinic.check_well()
            losses = of_node(clinic, "n2")
            assert 0 < len(losses) <= FLAPS
            for one in losses:
                (begin_ns, end_ns) = max(cut for cut in cuts if cut[0] < one["since_ns"] + S)
                assert abs(one["since_ns"] - begin_ns) < S, (one, cuts)
                assert one["until_ns"] < end_ns + 2 * S, (one, cuts)
            assert {one.who for one in clinic.told.values() if one.document["severity"] != "notice"} == {"n2"}


EXPIRY_S = 5.0
LATE_S = 2.7
"""More than half of that ExpiryTime, and less than a stall of which the node itself tells."""


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Lab]:
    """A lab whose participants keep silent ones for longer than their heartbeats last."""
    domain, tag = own_domain()
    uri = cyclone_uri(
        tag=tag, peers=("localhost",), lease_s=LONG_LEASE_S, spdp_interval_ms=200, environment={}
    )
    made = Lab(tmp_path, domain, tag, uri)
    yield made
    made.close()


def test_all_nodes_that_are_killed_at_once_are_one_error(patient: Lab) -> None:
    """They are silent for longer than an error needs, and their leases end one after the other."""
    patient.start_three()
    with watched(Clinic(patient, NAMES, copies=3)) as clinic:
        clinic.check_well()
        for _ in range(2):
            patient.kill(*NAMES)
            took_s = clinic.check("DUL-DOMAIN-LOST", "domain")
            assert clinic.errors == [("DUL-DOMAIN-LOST", "domain")]
            patient.start(*NAMES)
            patient.seen.wait_for("all are complete", lambda: patient.seen.are_complete(*NAMES))
            report("all are killed at once", took_s, clinic.check_well())
        assert clinic.errors == [("DUL-DOMAIN-LOST", "domain")]
        ended = [forms for forms in clinic.forms.values() if ("DUL-NODE-GONE", "n1") in forms]
        assert ended == []


def stood_still(lab: Lab, name: str, seconds: float) -> int:
    """Stop the process of a node for so long; returns when it began."""
    began_ns, pid = time.time_ns(), lab.pid(name)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)  # what is measured is a time
    os.kill(pid, signal.SIGCONT)
    return began_ns


def is_told_late(clinic: Clinic) -> bool:
    return ("DUL-HEARTBEAT-LATE", "n3") in [(one.code, one.who) for one in clinic.open]


def test_heartbeats_that_are_late_and_still_in_time(patient: Lab) -> None:
    patient.start_three(dataclasses.replace(Settings(), expiry_s=EXPIRY_S))
    with watched(Clinic(patient, NAMES, copies=3)) as clinic:
        clinic.check_well()
        began_ns = stood_still(patient, "n3", LATE_S)

        def noticed() -> list[str]:
            told = patient.trace("n1", "fellow.late", "fellow.disconnected", since_ns=began_ns)
            return [one["event"] for one in told if one["fellow"] == "n3"]

        patient.seen.wait_for("n1 notices it", noticed)
        assert noticed() == ["fellow.late"], "a machine so busy that it was lost proves nothing"
        took_s = clinic.wait("it is told", lambda: is_told_late(clinic), TOLD_S + BUSY_S)
        (found,) = [one for one in clinic.open if one.code == "DUL-HEARTBEAT-LATE"]
        assert found.document["severity"] == "notice"
        report("heartbeats are late, for a minute", took_s, 0.0)


def test_a_silence_beyond_the_lease_of_dds_is_a_loss_and_no_late_heartbeat(lab: Lab) -> None:
    """The fellows lose the node with its endpoints, although less than its ExpiryTime has passed."""
    lab.start_three()
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:
        clinic.check_well()
        began_ns = stood_still(lab, "n3", LEASE_S + 0.3)

        def lost() -> list[str]:
            told = lab.trace("n1", "fellow.disconnected", since_ns=began_ns)
            return [one["reason"] for one in told if one["fellow"] == "n3"]

        lab.seen.wait_for("n1 has it again", lambda: lost() and lab.seen.are_complete(*NAMES))
        assert lost() == ["its endpoints are gone"]
        clinic.listen(TOLD_S)
        assert not is_told_late(clinic)
