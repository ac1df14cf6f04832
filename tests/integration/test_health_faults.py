"""Faults on real nodes: `ospltool health` tells the right code and node, in time, once, and sees them end.

The first test is part of every run. The others are the long table, which `make faults` runs.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.supervisor.rundir import RunDirectory, location
from tests.integration.clinic import BUSY_S, ENDS_S, TOLD_S, Clinic, check_fault, filled, report, watched
from tests.integration.configurations import Settings, Space
from tests.integration.hosts import HostsLab, hosts_lab
from tests.integration.lab import Lab
from tests.integration.programs import ROOT
from tests.integration.test_deadlocks import Hanging

pytestmark = pytest.mark.dds
long_way = pytest.mark.skipif("OSPLTOOL_FAULTS" not in os.environ, reason="`make faults` runs it")

NAMES = ("n1", "n2", "n3")


def test_the_commonest_faults_are_told_once_and_orderly_stops_are_not(lab: Lab) -> None:
    names = lab.start_three()
    with watched(Clinic(lab, names, copies=3)) as clinic:
        clinic.check_well()

        def is_back(name: str) -> None:
            lab.start(name)
            lab.seen.wait_for("it is back", lambda: lab.seen.are_complete(*names))

        check_fault(clinic, "kill", "DUL-NODE-GONE", "n2", lambda: lab.kill("n2"), lambda: is_back("n2"))
        stopped = lab.pid("n3")
        check_fault(
            clinic, "SIGSTOP", "DUL-NODE-SILENT DUL-NODE-GONE", "n3",
            lambda: os.kill(stopped, signal.SIGSTOP), lambda: os.kill(stopped, signal.SIGCONT),
        )  # fmt: skip
        lab.configure("n4", Settings(spaces=(Space(elements=("stock*", "more")),)))
        check_fault(
            clinic, "other name-spaces", "DUL-INCOMPATIBLE", "n4",
            lambda: lab.start("n4"), lambda: lab.stop("n4"),
        )  # fmt: skip
        lab.seen.wait_for("all is well", lambda: lab.seen.are_complete(*names))
        lab.stop("n1")
        clinic.check_quiet(4.0)
        is_back("n1")
        clinic.check_quiet(2.0)


STOPPED_S = 4.0
"""A process is stopped for so long at least: a stall of less than 3 s is no news."""


def test_the_stall_of_a_process_is_told_once_it_goes_on_and_is_over_soon_after(lab: Lab) -> None:
    names = lab.start_three()
    with watched(Clinic(lab, names)) as clinic:
        clinic.check_well()
        began_s = time.monotonic()
        os.kill(lab.pid("n3"), signal.SIGSTOP)
        clinic.check("DUL-NODE-SILENT DUL-NODE-GONE", "n3")
        time.sleep(max(0.0, began_s + STOPPED_S - time.monotonic()))
        os.kill(lab.pid("n3"), signal.SIGCONT)

        def stalls() -> list[str]:
            return [one.who for one in clinic.open if one.code == "DUL-NODE-STALLED"]

        clinic.wait("the stall is told", lambda: stalls() == ["n3"], TOLD_S + BUSY_S)
        clinic.wait("the stall is over", lambda: not stalls(), ENDS_S + BUSY_S)
        clinic.check_well()


STARTS = int(os.environ.get("STARTS", "15"))


@long_way
@pytest.mark.timeout(120 + 20 * STARTS)
def test_a_healthy_start_again_and_again_is_quiet(lab: Lab) -> None:
    """One node after the other; each fifth stays away for longer than a heartbeat; each tenth time all do."""
    names = lab.configure_three()
    lab.start(*names)
    lab.seen.wait_for("all are complete", lambda: lab.seen.are_complete(*names))
    with watched(Clinic(lab, names, copies=3)) as clinic:
        clinic.check_well()
        for count in range(STARTS):
            print(f"start and orderly stop {count + 1}")
            stopped = names if count % 10 == 9 else (names[count % len(names)],)
            lab.stop(*stopped)
            if count % 5 == 4:
                clinic.check_quiet(2.5)
            lab.start(*stopped)
            lab.seen.wait_for("all are complete", lambda: lab.seen.are_complete(*names))
        clinic.check_quiet(3.0)
        assert [one for one in clinic.told.values() if one.document["severity"] != "notice"] == []


@long_way
def test_an_expected_node_and_all_nodes_that_are_not_there(lab: Lab) -> None:
    names = lab.configure_three()
    lab.start("n1", "n2")
    lab.seen.wait_for("two are complete", lambda: lab.seen.are_complete("n1", "n2"))
    with watched(Clinic(lab, names, copies=3)) as clinic:
        clinic.check("DUL-NODE-ABSENT", "n3")
        lab.start("n3")
        clinic.check_well()

        def power_is_back() -> None:
            lab.start(*names)

        check_fault(
            clinic, "power failure", "DUL-DOMAIN-LOST", "domain", lambda: lab.kill(*names), power_is_back
        )
        lab.stop(*names)
        clinic.check_quiet(5.0)


@long_way
def test_nobody_may_be_master(lab: Lab) -> None:
    for name, priority in (("n1", 200), ("n2", 0), ("n3", 0)):
        lab.configure(name, Settings().with_priority(priority))
    with watched(Clinic(lab, NAMES, bare=True)) as clinic:
        check_fault(
            clinic, "masterPriority 0", "DUL-MASTER-IMPOSSIBLE", "stock",
            lambda: lab.start("n2", "n3"), lambda: lab.start("n1"),
        )  # fmt: skip


DEFINITIONS = {
    "another durability": (Settings(spaces=(Space(durability="Transient"),)), "DUL-CONFIG-DIFFERS", "stock"),
    "masterPriority 255": (Settings().with_priority(255), "DUL-PRIORITIES-MIXED", "stock"),
}


@long_way
@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_node_that_is_configured_otherwise(lab: Lab, name: str) -> None:
    settings, code, who = DEFINITIONS[name]
    lab.start_three()
    lab.configure("n4", settings)
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:
        check_fault(clinic, name, code, who, lambda: lab.start("n4"), lambda: lab.stop("n4"))


@long_way
def test_a_full_disk(lab: Lab) -> None:
    store = lab.home("n3") / "store"
    store.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "ospltool-test", str(store)]
    if subprocess.run(mount, check=False, capture_output=True, timeout=10).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        lab.start_three()
        with watched(Clinic(lab, NAMES, copies=3)) as clinic:
            ballast: list[Path] = []

            def fill() -> None:
                ballast.append(filled(store))
                lab.write({"count": 3_000, "time": 1_000})

            check_fault(clinic, "full disk", "DUL-STORE-FULL", "n3", fill, lambda: ballast[0].unlink())
    finally:
        lab.stop_all()
        subprocess.run(["umount", "-l", str(store)], check=True, timeout=10)


@long_way
def test_a_writer_that_is_not_kept(lab: Lab) -> None:
    lab.start_three(Settings(spaces=(Space(elements=("*",)),)))
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:
        program = lab.program("untyped", topic="Bare", keyed=True, count=3)
        program.answer("guid")
        told_s = clinic.check("DUL-NOT-KEPT", "Bare")

        def all_tell() -> bool:
            return all((node := lab.seen.node(name)) is not None and node.unkept for name in NAMES)

        lab.seen.wait_for("all nodes tell it", all_tell)
        with watched(Clinic(lab, NAMES, copies=3)) as late:
            late.check("DUL-NOT-KEPT", "Bare")
            what = late.open[0].document["what"]
            assert "n1, n2 and n3 do not keep a durable writer of Bare" in what
        assert program.end() == 0
        report("a writer tells no type", told_s, clinic.check_well())


@long_way
def test_a_clock_that_is_wrong(lab: Lab) -> None:
    lab.start_three()
    lab.configure("n4", Settings().with_priority(10))
    lab.shifts_s["n4"] = 5.0
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:
        check_fault(
            clinic, "a wrong clock", "DUL-CLOCK-SKEW", "n4", lambda: lab.start("n4"), lambda: lab.stop("n4")
        )


@long_way
def test_a_thread_that_hangs(lab: Lab, tmp_path: Path) -> None:
    Hanging(lab, tmp_path)
    with watched(Clinic(lab, ("n1",), bare=True)) as clinic:

        def hang() -> None:
            (tmp_path / "store").touch()
            lab.write({"count": 1, "time": 1_000})

        check_fault(
            clinic, "a thread hangs", "DUL-NODE-STUCK", "n1", hang, lambda: (tmp_path / "store").unlink()
        )


@long_way
def test_what_a_supervisor_knows_is_why(lab: Lab) -> None:
    names = lab.configure_three(Settings(failure_action="restart"))
    for name in names:
        run_command(lab, "start", lab.home(name) / "ospl.xml")
    lab.seen.wait_for("all are complete", lambda: lab.seen.are_complete(*names))
    try:
        with watched(Clinic(lab, names, copies=3)) as clinic:
            before = lab.seen.node("n2")
            assert before is not None
            os.kill(before.pid, signal.SIGKILL)
            told_s = clinic.check("DUL-NODE-SILENT DUL-NODE-RESTARTED", "n2")
            assert clinic.open[0].document["severity"] == "warning"
            clinic.wait("it says why", lambda: "signal 9" in clinic.open[0].document["why"], 10.0)
            clinic.wait("it is back", lambda: clinic.times("DUL-NODE-RESTARTED") == 1, ENDS_S + BUSY_S)
            report("kill, and the supervisor", told_s, clinic.check_well(30.0))
            (kept,) = {one.document["why"] for one in clinic.told.values() if one.who == "n2"}
            saw = r"its supervisor saw at \d\d:\d\d:\d\d UTC: the node ended .*signal 9.* \(restart 1\)"
            assert re.fullmatch(saw, kept), kept
            run_command(lab, "stop", lab.home("n2") / "ospl.xml")
            clinic.check_quiet(5.0)
            watches = supervisor_of(lab, "n1")
            check_fault(
                clinic, "SIGSTOP of a supervisor", "DUL-NODE-UNSUPERVISED", "n1",
                lambda: os.kill(watches, signal.SIGSTOP), lambda: os.kill(watches, signal.SIGCONT),
            )  # fmt: skip
            clinic.check_quiet(2.0)
            os.kill(supervisor_of(lab, "n3"), signal.SIGKILL)
            told_s = clinic.check("DUL-NODE-GONE", "n3")
            assert "supervisor was killed" in clinic.open[0].document["why"]
            run_command(lab, "start", lab.home("n3") / "ospl.xml")
            report("kill of the supervisor alone", told_s, clinic.check_well(30.0))
    finally:
        run_command(lab, "stop", "--all")


def supervisor_of(lab: Lab, name: str) -> int:
    records = [one.record() for one in RunDirectory(location(lab.environ)).nodes()]
    (found,) = [one for one in records if one and one.configuration.startswith(str(lab.home(name)))]
    return found.supervisor.pid


def run_command(lab: Lab, *arguments: object) -> None:
    command = [sys.executable, "-m", "ospltool.cli.app", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=lab.environ, check=False, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


@long_way
def test_a_reader_that_cannot_be_served(lab: Lab) -> None:
    lab.start_three()
    lab.write({"count": 20, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(name) == 20 for name in NAMES))
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:
        reader = lab.reader(resources=(-1, 5, -1), holds=True)
        clinic.wait(
            "it is told", lambda: any(one.code == "DUL-READER-NOT-SERVED" for one in clinic.open), 20.0
        )
        reader.program.tell(take=True)
        report("a reader is not served", 0.0, clinic.check_well())


@long_way
def test_a_filter_that_does_not_fit(lab: Lab) -> None:
    lab.start_three()
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:
        lab.stop("n3")
        settings = Settings(filters=(("no_such_field > 3", "stock.Reading"),)).with_priority(50)
        lab.configure("n3", settings)
        lab.start("n3")
        lab.write({"count": 20, "time": 1_000})
        clinic.wait("it is told", lambda: any(one.code == "DUL-FILTER-REFUSED" for one in clinic.open), 20.0)
        assert [one.who for one in clinic.open] == ["n3"]
        lab.stop("n3")
        lab.configure("n3", dataclasses.replace(settings, filters=()))
        lab.start("n3")
        report("a filter does not fit", 0.0, clinic.check_well(30.0))


# Several hosts.


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[HostsLab]:
    with hosts_lab(tmp_path, "abcd", multicast="false") as made:
        for name, priority in (("n1", 200), ("n2", 100), ("n3", 50), ("n4", 10)):
            made.lab.configure(name, Settings().with_priority(priority))
        made.start()
        yield made


def is_missing(clinic: Clinic, names: list[str]) -> bool:
    return sorted(one.who for one in clinic.open) == names


def seen_from(hosts: HostsLab, name: str) -> Clinic:
    return Clinic(hosts.lab, hosts.names, copies=4, prefix=hosts.lab.prefixes[name])


@long_way
@pytest.mark.netns
def test_links_that_are_cut(hosts: HostsLab) -> None:
    network = hosts.network
    with watched(seen_from(hosts, "n4")) as clinic:
        clinic.check_well()
        check_fault(
            clinic, "a host is cut off", "DUL-NODE-GONE", "n2",
            lambda: network.cut("b"), lambda: network.heal("b"),
        )  # fmt: skip
        check_fault(
            clinic, "two hosts do not hear each other", "DUL-PARTIAL-MESH", "n1 and n2",
            lambda: network.part("a", "b"), lambda: network.reunite("a", "b"),
        )  # fmt: skip

        def alone() -> None:
            for other in ("b", "c"):
                network.part("a", other)

        def together() -> None:
            for other in ("b", "c"):
                network.reunite("a", other)

        check_fault(clinic, "one host hears one other only", "DUL-PARTIAL-MESH", "n1", alone, together)


@pytest.fixture
def two_on_a_host(tmp_path: Path) -> Iterator[HostsLab]:
    """n1 and n2 on host a, n3 on b, n4 on c; host d has none. All hosts have the name of this machine."""
    with hosts_lab(tmp_path, "abcd", multicast="false") as made:
        made.lab.prefixes["n2"], made.lab.prefixes["n3"] = made.lab.prefixes["n1"], made.lab.prefixes["n2"]
        made.lab.prefixes["n4"], made.lab.prefixes["d"] = made.network.on("c"), made.network.on("d")
        for name, priority in (("n1", 200), ("n2", 100), ("n3", 50), ("n4", 10)):
            made.lab.configure(name, Settings().with_priority(priority))
        made.start()
        yield made


@long_way
@pytest.mark.netns
def test_why_does_not_say_killed_for_a_link_that_is_cut(two_on_a_host: HostsLab) -> None:
    """The hosts share a name: their addresses tell them apart."""
    hosts = two_on_a_host
    lab, network = hosts.lab, hosts.network
    a, b = network.addresses["a"], network.addresses["b"]
    with watched(Clinic(lab, hosts.names, copies=4, prefix=lab.prefixes["d"])) as clinic:
        clinic.check_well()

        def why(*told: tuple[str, str]) -> None:
            def gone() -> bool:
                return {one.who for one in clinic.open if one.code != "DUL-NODE-SILENT"} >= {
                    who for who, _ in told
                }

            clinic.wait("they are gone", gone, 10.0 + BUSY_S)
            shown = {one.who: one.document["why"] for one in clinic.open}
            print(shown)
            assert all(text in shown[who] for who, text in told), shown

        network.cut("b")
        clinic.check("DUL-NODE-GONE", "n3")
        why(("n3", f"cause unknown: link to {b} cut, host down, or process killed"))
        network.heal("b")
        clinic.check_well(30.0)
        lab.kill("n2")
        clinic.check("DUL-NODE-GONE", "n2")
        why(("n2", f"no end was announced; its host {a} answered: n1 was heard there at"))
        lab.start("n2")
        clinic.check_well(30.0)
        network.cut("a")
        why(*((name, f"cause unknown: link to {a} cut, or host down") for name in ("n1", "n2")))
        network.heal("a")
        clinic.check_well(30.0)
        network.part("c", "d")
        clinic.wait(
            "it is out of reach",
            lambda: any(one.document["what"] == "n4 is out of reach of this watch" for one in clinic.open),
            10.0 + BUSY_S,
        )
        (found,) = [one for one in clinic.open if one.document["severity"] != "notice"]
        assert (found.code, found.who) == ("DUL-NODE-SILENT", "n4")
        assert found.document["why"].startswith(
            f"no route leads to {network.addresses['c']} on the host of this watch"
        )
        network.reunite("c", "d")
        clinic.check_well(30.0)
    with watched(Clinic(lab, hosts.names, copies=4, prefix=lab.prefixes["n4"])) as here:
        here.check_well()
        lab.kill("n4")
        here.wait(
            "its host is here",
            lambda: any("its host is that of this watch" in one.document["why"] for one in here.open),
            10.0 + BUSY_S,
        )


@long_way
@pytest.mark.netns
def test_a_split_brain_is_told_on_either_side(hosts: HostsLab) -> None:
    with watched(seen_from(hosts, "n1")) as one, watched(seen_from(hosts, "n4")) as other:
        one.check_well()
        other.check_well()
        hosts.network.split("c", "d")
        for clinic, gone in ((one, ["n3", "n4"]), (other, ["n1", "n2"])):
            clinic.wait("they are gone", functools.partial(is_missing, clinic, gone), 20.0)
            assert {told.code for told in clinic.open} == {"DUL-NODE-GONE"}
        hosts.network.join("c", "d")
        began = time.monotonic()
        for clinic in (one, other):
            clinic.check_well(30.0)
        report("split brain", 0.0, time.monotonic() - began)
