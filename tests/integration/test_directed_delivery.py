"""What is given to one process reaches no other, with multicast and without."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.configurations import Settings
from tests.integration.hosts import HostsLab, hosts_lab
from tests.integration.lab import Lab, Reader
from tests.integration.network import network_of

COUNT = 300
LATE = 20
MANY = 5_000
BOTH = pytest.mark.parametrize("lab", ["true", "false"], indirect=True, ids=["multicast", "unicast"])


@pytest.fixture(params=["true", "spdp", "false"], ids=["multicast", "multicast discovery", "unicast"])
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostsLab]:
    with hosts_lab(tmp_path, "abc", multicast=request.param) as made:
        yield made


def check_once(*readers: Reader, count: int = COUNT) -> None:
    """Each reader got each sample exactly once."""
    for reader in readers:
        reader.wait(count)
        tally = reader.tally()
        assert (tally["arrivals"], tally["instances"], tally["repeated"]) == (count, count, 0)


@pytest.mark.dds
@BOTH
def test_readers_that_start_one_after_the_other_get_everything_once_each(lab: Lab) -> None:
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    lab.write({"count": COUNT, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == COUNT)
    readers: list[Reader] = []
    for number in range(1, 5):
        readers.append(lab.reader())
        check_once(readers[-1])
        lab.wait_delivered(number)
    check_once(*readers)


@pytest.mark.dds
@pytest.mark.netns
def test_late_joiners_on_three_hosts_get_everything_once_from_their_own_host(hosts: HostsLab) -> None:
    lab = hosts.lab
    lab.configure_three()
    hosts.start()
    running = [hosts.reader(name) for name in hosts.names]
    view = hosts.views["n3"]
    view.wait_for(
        "the running readers have their sets", lambda: deliveries(hosts) == dict.fromkeys(hosts.names, 1)
    )
    view.wait_for_tails(3, *hosts.names)
    writer = hosts.writer("n1", readers=6, steps=[{"count": COUNT, "time": 1_000}])
    check_once(*running)
    view.wait_for("it is stored", lambda: all(view.stored(name) == COUNT for name in hosts.names))
    programs = [lab.program("reader", prefix=lab.prefixes[hosts.names[number % 3]]) for number in range(LATE)]
    for program in programs:
        program.answer("ready")
    late = [Reader(program, lab) for program in programs]
    check_once(*late)
    wanted = {"n1": 7 + 1, "n2": 7 + 1, "n3": 6 + 1}
    view.wait_for(
        "every reader is served by the node on its host",
        lambda: deliveries(hosts) == wanted,
    )
    check_once(*late, *running)
    assert writer.end() == 0


@pytest.mark.dds
@pytest.mark.netns
def test_a_reader_on_a_second_interface_is_served_by_the_node_on_its_host(tmp_path: Path) -> None:
    network = network_of(("a", "b"))
    try:
        network.add_second_interfaces()
        hosts = HostsLab(tmp_path, network, multicast="true", interfaces=("e0", "e1"))
        try:
            check_second_interface(hosts)
        finally:
            hosts.lab.close()
    finally:
        network.close()


def deliveries(hosts: HostsLab) -> dict[str, int]:
    """Return how many deliveries each node has finished."""
    return {name: len(hosts.lab.trace(name, "deliver.finished")) for name in hosts.names}


def have_delivered(hosts: HostsLab, count: int) -> bool:
    """Whether the nodes have finished so many deliveries."""
    return sum(deliveries(hosts).values()) >= count


def check_second_interface(hosts: HostsLab) -> None:
    """Late joiners that have only their host's second address are served by the node there."""
    lab = hosts.lab
    for name, priority in (("n1", 200), ("n2", 100)):
        lab.configure(name, Settings().with_priority(priority))
    hosts.start()
    writer = hosts.writer("n1", readers=2, steps=[{"count": COUNT, "time": 1_000}])
    view = hosts.views["n2"]
    view.wait_for("it is stored", lambda: all(view.stored(name) == COUNT for name in hosts.names))
    only_second = lab.uri.replace('<NetworkInterface name="e0"/>', "")
    assert only_second != lab.uri
    for number, name in enumerate(hosts.names, 1):
        late = hosts.reader(name, environ={"CYCLONEDDS_URI": only_second})
        check_once(late)
        view.wait_for("a delivery is at its end", functools.partial(have_delivered, hosts, number))
    assert deliveries(hosts) == {"n1": 1, "n2": 1}
    assert writer.end() == 0


@pytest.mark.dds
@pytest.mark.netns
def test_no_delivery_is_found_where_others_look_for_participants(tmp_path: Path) -> None:
    """Half of the ports that the kernel gives are among those at which readers look for others."""
    network = network_of(("a",))
    try:
        hosts = HostsLab(tmp_path, network, multicast="false", participants=120)
        try:
            check_none_is_found(hosts)
        finally:
            hosts.lab.close()
    finally:
        network.close()


def check_none_is_found(hosts: HostsLab) -> None:
    """Several readers that are served at one time get everything once."""
    lab = hosts.lab
    first, last = searched_ports_of(lab.domain)
    setting = "/proc/sys/net/ipv4/ip_local_port_range"
    subprocess.run([*lab.prefixes["n1"], "sh", "-c", f"echo {first} {last} > {setting}"], check=True)
    lab.configure("n1", Settings())
    hosts.start()
    writer = hosts.writer("n1", readers=1, steps=[{"count": MANY, "time": 1_000}])
    view = hosts.views["n1"]
    view.wait_for("it is stored", lambda: view.stored("n1") == MANY)
    assert writer.end() == 0
    lab.stop("n1")
    programs = [lab.program("reader", prefix=lab.prefixes["n1"]) for _ in range(6)]
    for program in programs:
        program.answer("ready")
    lab.start("n1")
    late = [Reader(program, lab) for program in programs]
    check_once(*late, count=MANY)
    view.wait_for("all deliveries are at their end", lambda: have_delivered(hosts, len(late)))
    check_once(*late, count=MANY)


def searched_ports_of(domain: int) -> tuple[int, int]:
    """The first and last port at which others look for participants of a domain."""
    first = 7410 + 250 * domain
    return first, first + 240
