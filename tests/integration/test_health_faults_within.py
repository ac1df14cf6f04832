"""More faults on real processes: of disks, versions, links in one direction, and persistence services.

`make faults` runs them, with those of `test_health_faults`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.runtime import codec
from ospltool.client import DurabilityClient, DurableReader
from tests.integration import hanging
from tests.integration.application_types import Reading
from tests.integration.clinic import BUSY_S, ENDS_S, TOLD_S, Clinic, check_fault, report, watched
from tests.integration.configurations import Settings, Space
from tests.integration.hanging import hooked
from tests.integration.hosts import hosts_lab
from tests.integration.lab import Lab
from tests.redundancy.replicas import Replicas

pytestmark = [
    pytest.mark.dds,
    pytest.mark.skipif("OSPLTOOL_FAULTS" not in os.environ, reason="`make faults` runs it"),
]

NAMES = ("n1", "n2", "n3")
WAITING = 50


def test_fewer_copies_than_expected(lab: Lab) -> None:
    lab.start_three()
    lab.configure("n4", Settings(spaces=(Space(name="other", elements=("other",)),)))
    lab.start("n4")
    with watched(Clinic(lab, (*NAMES, "n4"), copies=4)) as clinic:
        told_s = clinic.check("DUL-COPIES-LOW", "stock")
        lab.stop("n4")
        lab.configure("n4", Settings().with_priority(10))
        lab.start("n4")
        report("a copy less than expected", told_s, clinic.check_well())


def test_a_disk_that_takes_nothing(lab: Lab, tmp_path: Path) -> None:
    """Its queue has a bound: when that is reached, writers are held back until the disk goes on."""
    path = lab.configure("n1", Settings())
    size = f"<QueueSize>{WAITING}</QueueSize></Persistent>"
    path.write_text(path.read_text().replace("</Persistent>", size))
    lab.start("n1", environ=hanging.environ(tmp_path))
    lab.seen.wait_for("it is complete", lambda: lab.seen.are_complete("n1"))
    with watched(Clinic(lab, ("n1",), copies=1)) as clinic:

        def hold() -> None:
            (tmp_path / "store").touch()
            lab.write({"count": 2 * WAITING, "time": 1_000})
            lab.write({"first": 2 * WAITING, "count": 1, "time": 2_000})

        check_fault(
            clinic, "writers are held back", "DUL-BACK-PRESSURE", "n1", hold,
            lambda: (tmp_path / "store").unlink(),
        )  # fmt: skip
        lab.seen.wait_for("nothing is lost", lambda: lab.seen.stored("n1") == 2 * WAITING + 1)


OTHER_VERSION = """
import os, time
from engine.node import wire
from engine.runtime import codec
began_s, show = time.monotonic(), wire.ConsolePublisher.show
def show_late(self, now):
    if time.monotonic() - began_s > {late_s}:
        show(self, now)
    else:
        self.times.done(now, self._wire.beats)
codec.VERSION, wire.ConsolePublisher.show = 99, show_late
"""


@pytest.mark.parametrize("late_s", [0.0, 8.0])
def test_a_node_of_another_protocol_version(lab: Lab, tmp_path: Path, late_s: float) -> None:
    """Its fellows may tell of it before it shows itself to the watcher, as on a busy machine."""
    lab.start_three()
    lab.configure("n4", Settings().with_priority(10))
    newer = hooked(tmp_path, OTHER_VERSION.format(late_s=late_s))
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:
        check_fault(
            clinic, "another version of the protocol", "DUL-PROTOCOL", "n4",
            lambda: lab.start("n4", environ=newer), lambda: lab.stop("n4"),
        )  # fmt: skip
        told = next(one.document for one in clinic.told.values() if one.code == "DUL-PROTOCOL")
        assert "n4 is of a newer release, whose protocol n" in told["why"]
        assert f": 99 (n4) and {codec.VERSION} (n" in told["what"]


def test_a_setting_without_effect(lab: Lab) -> None:
    lab.start_three()
    path = lab.configure("n4", Settings().with_priority(10))
    path.write_text(path.read_text().replace("<Role>", "<y2038Ready>false</y2038Ready><Role>"))
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:
        clinic.check_well()

        def told() -> list[tuple[str, str]]:
            return [(one.code, one.who) for one in clinic.open if one.code == "DUL-CONFIG-IGNORED"]

        lab.start("n4")
        told_s = clinic.wait("it is told", lambda: told() == [("DUL-CONFIG-IGNORED", "n4")], TOLD_S + BUSY_S)
        found = next(one.document for one in clinic.open if one.code == "DUL-CONFIG-IGNORED")
        assert f"{path}:" in found["what"]
        assert "//OpenSplice/Domain/y2038Ready has no effect on this node" in found["what"]
        lab.stop("n4")
        ended_s = clinic.wait("it is over", lambda: not told(), ENDS_S + BUSY_S)
        report("a setting without effect", told_s, ended_s)


def test_a_store_that_was_damaged(lab: Lab) -> None:
    lab.start_three()
    lab.write({"count": 200, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(name) == 200 for name in NAMES))
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:

        def damage() -> None:
            lab.stop("n3")
            with (lab.home("n3") / "store" / "store.sqlite").open("r+b") as file:
                file.write(b"garbage" * 100)
            lab.start("n3")

        def look_into_it() -> None:
            lab.stop("n3")
            lab.start("n3")

        check_fault(clinic, "a damaged store", "DUL-STORE-DAMAGED", "n3", damage, look_into_it)
        lab.seen.wait_for("its fellows gave it back", lambda: lab.seen.stored("n3") == 200)


@pytest.mark.netns
def test_a_link_that_is_cut_in_one_direction(tmp_path: Path) -> None:
    with hosts_lab(tmp_path, "abc", multicast="false") as hosts:
        for name, priority in (("n1", 200), ("n2", 100), ("n3", 50)):
            hosts.lab.configure(name, Settings().with_priority(priority))
        hosts.start()
        with watched(Clinic(hosts.lab, NAMES, copies=3, prefix=hosts.lab.prefixes["n3"])) as clinic:
            clinic.check_well()
            check_fault(
                clinic, "a link is cut in one direction", "DUL-PARTIAL-MESH", "n1 and n2",
                lambda: hosts.network.silence("a", "b"), lambda: hosts.network.end_silence("a", "b"),
            )  # fmt: skip


# Persistence services.

LOG = "logger"
QUORUM = f"""<durable_subscriptions><element><role_name>{LOG}</role_name><topic_name>Reading</topic_name>
<quorum>2</quorum></element></durable_subscriptions>"""
TOGETHER = "<synchronize_durable_subscription>true</synchronize_durable_subscription>"


@pytest.fixture
def services(lab: Lab) -> Iterator[Replicas]:
    made = Replicas(lab, synchronization=TOGETHER, more=QUORUM)
    yield made
    made.close()


def test_persistence_services_that_are_killed_or_stand_still(lab: Lab, services: Replicas) -> None:
    services.start("a", "b")
    services.wait_connected("a", "b")
    with watched(Clinic(lab, (), bare=True)) as clinic:
        check_fault(
            clinic, "a persistence service is killed", "DUL-SERVICE-GONE", "persistence service b",
            lambda: services.kill("b"), lambda: services.start("b"),
        )  # fmt: skip
        pid = services.shown()["a"].pid
        check_fault(
            clinic, "a persistence service stands still", "DUL-SERVICE-SILENT DUL-SERVICE-GONE",
            "persistence service a",
            lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT),
        )  # fmt: skip
        services.wait_connected("a", "b")
        services.stop("b")
        clinic.check_quiet(4.0)


def test_a_durable_subscription_without_its_quorum(lab: Lab, services: Replicas) -> None:
    services.start("a")
    with (
        DurabilityClient(lab.domain, uri=lab.uri) as client,
        watched(Clinic(lab, (), bare=True)) as clinic,
    ):

        def take(member: str) -> None:
            with DurableReader(
                client, "Reading", Reading, ("stock",), durable_subscription=LOG, quorum=2, member=member
            ) as reader:
                reader.wait_for_historical_data(30)
                reader.take()
                reader.wait_for_acknowledgments(20)

        def come() -> None:
            take("one")
            take("two")

        def write() -> None:
            lab.write({"count": 2, "time": 1_000}, depth=0, readers=1)

        check_fault(clinic, "no quorum", "DUL-NO-QUORUM", f"subscription {LOG}", write, come)
        (told,) = [one.document for one in clinic.told.values()]
        assert told["what"].endswith("has 0 of 2 readers; 2 samples wait at persistence service a")
        assert told["why"] == "2 more of its readers must run and be connected to acknowledge them"
