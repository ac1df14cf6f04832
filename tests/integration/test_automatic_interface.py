"""NetworkInterfaceAddress AUTO on hosts with several interfaces, and on one that gets its address late."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.dds.uri import cyclone_uri
from tests.integration.configurations import Settings, Space
from tests.integration.conftest import own_domain
from tests.integration.lab import Lab
from tests.integration.network import Network, network_of
from tests.tables import table_rows

pytestmark = [pytest.mark.dds, pytest.mark.netns]

AUTO = """<DDSI2Service name="ddsi2">
    <General><NetworkInterfaceAddress>AUTO</NetworkInterfaceAddress></General>
  </DDSI2Service>"""
TABLE = table_rows("readers.md", "Which network interface")
TRANSIENT = (Space(durability="Transient"),)
DISABLED = '<Service name="ddsi2" enabled="false"><Command>ddsi2</Command></Service>'
BY_DEFAULT = {"CYCLONEDDS_URI": ""}
"""Applications with the default settings of Cyclone DDS."""


def ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True, timeout=10)


def test_hosts_find_each_other_without_naming_an_interface_also_a_late_one(tmp_path: Path) -> None:
    network = network_of(("a", "b", "c"))
    try:
        network.add_second_interfaces()
        domain, tag = own_domain()
        lab = Lab(tmp_path, domain, tag, watched=False)
        lab.environ["CYCLONEDDS_URI"] = ""
        try:
            check(lab, network)
        finally:
            lab.close()
    finally:
        network.close()


def check(lab: Lab, network: Network) -> None:
    names = {"n1": "a", "n2": "b", "n3": "c"}
    lab.prefixes = {name: network.on(host) for name, host in names.items()}
    settings = Settings(network=AUTO, store=False, spaces=TRANSIENT)
    for name, priority in zip(names, (200, 100, 50), strict=True):
        lab.configure(name, settings.with_priority(priority))
    late = network.space("c")
    for interface in ("e0", "e1"):
        ip("-n", late, "link", "set", interface, "down")
    only_loopback = {"CYCLONEDDS_URI": cyclone_uri(environment={})}

    # Two hosts with two interfaces each; applications use loopback, or what Cyclone DDS takes.
    everywhere = {"CYCLONEDDS_URI": cyclone_uri(interfaces=("e0",), multicast="true", environment={})}
    first, last = lab.watch_from("n1", everywhere), lab.watch_from("n3", only_loopback)
    lab.start(*names)
    first.wait_for("two are complete", lambda: first.are_complete("n1", "n2"))
    (used,) = lab.trace("n1", "lifecycle.interface")
    assert used["interface"] == "e0"
    lab.write({"count": 5, "time": 1_000}, prefix=network.on("a"), readers=2)
    lab.write({"first": 10, "count": 2, "time": 1_000}, prefix=network.on("b"), environ=only_loopback)
    first.wait_for("both have it", lambda: (first.samples("n1"), first.samples("n2")) == (7, 7))
    for environ in (BY_DEFAULT, only_loopback):
        reader = lab.reader(prefix=network.on("b"), environ=environ)
        reader.wait(7)
        assert reader.tally()["instances"] == 7

    # A host without a network: its node and its applications meet, and its memory outlives the move.
    last.wait_for("the third is complete alone", lambda: last.are_complete("n3"))
    lab.write({"first": 20, "count": 3, "time": 1_000}, prefix=network.on("c"))
    last.wait_for("it has it", lambda: last.samples("n3") == 3)
    assert lab.trace("n3", "lifecycle.interface-found") == []
    ip("-n", late, "link", "set", "e0", "up")
    first.wait_for("all are one", lambda: first.are_complete(*names) and first.samples("n3") == 10)
    (found,) = lab.trace("n3", "lifecycle.interface-found")
    assert (found["before"], found["interface"]) == ("lo", f"e0 ({network.addresses['c']})")
    assert {lab.process(name).poll() for name in names} == {None}
    beside = lab.reader(prefix=network.on("c"), environ=only_loopback)
    beside.wait(10)
    assert beside.tally()["instances"] == 10


def ddsi(settings: str) -> str:
    return f'<DDSI2Service name="ddsi2"><General>{settings}</General></DDSI2Service>'


def named(interface: str) -> str:
    return ddsi(f"<NetworkInterfaceAddress>{interface}</NetworkInterfaceAddress>")


def test_which_interface_a_node_uses(tmp_path: Path) -> None:
    """The table of docs/readers.md, on a host whose first interface cannot multicast."""
    rows = {row["The configuration"]: row["What a node uses"] for row in TABLE}
    network = network_of(("a",))
    try:
        network.add_second_interfaces()
        ip("-n", network.space("a"), "link", "set", "e0", "multicast", "off")
        cases = {
            "`CYCLONEDDS_URI` is set": [named("e1")],
            "no `DDSI2Service` that is enabled": ["", named("e1") + DISABLED],
            "`NetworkInterfaceAddress` is a name or an address": [named("e0"), named(network.addresses["a"])],
            "`NetworkInterfaceAddress` is `AUTO`, or left out": [AUTO, ddsi("")],
        }
        assert rows.keys() == cases.keys()
        names = {network.addresses["a"]: "e0"}
        uses = {
            "the one that it names": "e0",
            "loopback": "lo",
            "that one": "e0",
            "the first interface that is up, has an IPv4 address, is not loopback and can multicast;"
            " loopback beside it": "e1",
        }
        domain, tag = own_domain()
        lab = Lab(tmp_path, domain, tag, watched=False)
        environ = {"CYCLONEDDS_URI": cyclone_uri(interfaces=("e0",), environment={})}
        try:
            wanted: dict[str, str] = {}
            for text, settings in cases.items():
                for setting in settings:
                    name = f"n{len(wanted)}"
                    wanted[name] = uses[rows[text]]
                    lab.prefixes[name] = network.on("a")
                    path = lab.configure(
                        name, Settings(network=setting.removesuffix(DISABLED), store=False, spaces=TRANSIENT)
                    )
                    if setting.endswith(DISABLED):
                        text_of = path.read_text(encoding="utf-8")
                        path.write_text(
                            text_of.replace("</Domain>", DISABLED + "</Domain>"), encoding="utf-8"
                        )
                    lab.start(name, environ=environ if "URI" in text else BY_DEFAULT)
            deadline = time.monotonic() + 60.0
            found: dict[str, str] = {}
            while found.keys() != wanted.keys():
                assert time.monotonic() < deadline, found
                time.sleep(0.1)
                for name in wanted:
                    if (lab.home(name) / "trace.log").exists():
                        for traced in lab.trace(name, "lifecycle.interface"):
                            found[name] = names.get(traced["interface"], traced["interface"])
            assert found == wanted
        finally:
            lab.close()
    finally:
        network.close()


def test_links_that_carry_nothing_are_said_to_be_broken_if_none_is_left() -> None:
    """The plug pulled, the interface down, an address that is gone: of all that are used, or of one."""
    network = network_of(("a",))
    try:
        network.add_second_interfaces()
        told = "import sys; from engine.dds.interfaces import broken_links; print(broken_links(sys.argv[1:]))"

        def broken(*links: str) -> str:
            command = (*network.on("a"), sys.executable, "-c", told, *links)
            return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout[:-1]

        assert broken("e0") == broken("lo") == broken("e0", "nowhere") == ""
        assert broken("e7", "10.9.9.9") == "interface e7 is not there and interface 10.9.9.9 is not there"
        network.cut("a")
        assert broken("e0") == broken(network.addresses["a"]) == "interface e0 has no carrier"
        assert broken("e0", "e1") == ""
        ip("-n", network.space("a"), "link", "set", "e1", "down")
        assert broken("e0", "e1") == "interface e0 has no carrier and interface e1 is down"
        ip("-n", network.space("a"), "addr", "flush", "dev", "e0")
        assert broken("e0") == "interface e0 has no address"
    finally:
        network.close()


WATCH = """
import sys
import time
from ospltool.live.dds import LiveFeed
feed = LiveFeed(int(sys.argv[1]))
while True:
    feed.wait(1.0)
    for notice in feed.poll().notices:
        print(notice.kind.value, notice.text, flush=True)
"""


def test_a_watch_that_starts_while_its_interface_is_down_says_so_and_uses_it_later() -> None:
    """By name it cannot be opened; where Cyclone DDS has the choice, it opens loopback, and must move."""
    network = network_of(("a",))
    general = "<General><Interfaces><NetworkInterface {}/></Interfaces></General>"
    general = f"<CycloneDDS><Domain>{general}</Domain></CycloneDDS>"
    space, domain = network.space("a"), str(own_domain()[0])
    try:
        ip("-n", space, "link", "set", "e0", "down")
        for given in ("name='e0'", f"address='{network.addresses['a']}'"):
            health = [
                *network.on("a"),
                sys.executable,
                "-m",
                "ospltool.cli.app",
                "health",
                "--domain",
                domain,
            ]
            environ = {**os.environ, "CYCLONEDDS_URI": general.format(given)}
            told = subprocess.run(
                health, check=False, capture_output=True, text=True, timeout=60, env=environ
            )
            assert (told.returncode, told.stderr.count("\n"), "' is down; usable: lo" in told.stderr) == (
                3,
                1,
                True,
            )
        environ["CYCLONEDDS_URI"] = general.format("autodetermine='true'")
        command = [*network.on("a"), sys.executable, "-c", WATCH, domain]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as watch:
            assert watch.stdout is not None
            try:
                assert watch.stdout.readline() == "link lost interface e0 is down\n"
                ip("-n", space, "link", "set", "e0", "up")
                found = watch.stdout.readline()
                while found == "link lost interface e0 has no carrier\n":  # for a moment
                    found = watch.stdout.readline()
                assert found == "link found \n"
                listens = ["ip", "-n", space, "maddr", "show", "dev", "e0"]
                deadline = time.monotonic() + 30
                while b"239.255.0.1" not in subprocess.run(listens, check=True, capture_output=True).stdout:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)  # it opens the domain again
            finally:
                watch.kill()
    finally:
        network.close()
