"""When a node that chooses its interface itself moves to another one, and what settings AUTO makes."""

from __future__ import annotations

import socket

import pytest

from engine.capture import configured_uri
from engine.capture.configured_uri import INTERFACE_PERIOD_S, InterfaceWatch
from engine.config.loader import interpret
from engine.config.reader import parse
from engine.dds import interfaces
from engine.dds.uri import cyclone_uri

FILE = """<OpenSplice><Domain><Name>n</Name></Domain>{network}
<DurabilityService name="durability"><NameSpaces><NameSpace name="a"><Partition>*</Partition></NameSpace>
<Policy nameSpace="*" durability="Durable" aligner="True" alignee="Initial"/></NameSpaces></DurabilityService>
</OpenSplice>"""
NAMED = (
    '<DDSI2Service name="d"><General><NetworkInterfaceAddress>{}</NetworkInterfaceAddress></General>'
    '<Discovery><Peers><Peer Address="10.0.0.9"/></Peers></Discovery></DDSI2Service>'
)


class Machine:
    """The interfaces of a machine: name to address, empty while it has none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: dict[str, str] = {}
        self.up: list[str] = []
        monkeypatch.setattr(configured_uri, "suitable_interface", lambda: next(iter(self.up), ""))
        monkeypatch.setattr(configured_uri, "address_of", lambda name: self.addresses.get(name, "127.0.0.1"))

    def set(self, name: str, address: str, *, up: bool = True) -> None:
        self.addresses[name] = address
        self.up = [each for each in self.up if each != name] + ([name] if up else [])


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def looks(watch: InterfaceWatch, first: int, count: int = 3) -> list[str]:
    return [watch.next_interface((first + n) * INTERFACE_PERIOD_S) for n in range(count)]


def test_an_interface_that_comes_up_late_is_moved_to_once_it_has_settled(machine: Machine) -> None:
    watch = InterfaceWatch()
    assert looks(watch, 0) == ["", "", ""]
    machine.set("e0", "10.0.0.1")
    assert watch.next_interface(3) == ""
    machine.set("e0", "10.0.0.2")  # it is not settled yet
    assert [
        watch.next_interface(4),
        watch.next_interface(4.5),
        watch.next_interface(5),
    ] == ["", "", "e0 (10.0.0.2)"]


def test_a_node_moves_when_its_address_is_another_and_not_when_a_cable_is_pulled(machine: Machine) -> None:
    machine.set("e0", "10.0.0.1")
    watch = InterfaceWatch()
    machine.set("e1", "10.1.0.1")
    machine.set("e0", "10.0.0.1", up=False)  # e1 would be chosen now, but e0 has its address still
    assert looks(watch, 0) == ["", "", ""]
    machine.set("e1", "10.1.0.1", up=False)
    assert looks(watch, 10) == ["", "", ""]
    machine.set("e0", "10.0.0.7")
    assert looks(watch, 20)[1] == "e0 (10.0.0.7)"


@pytest.mark.parametrize(
    ("network", "up", "interfaces_used", "peers"),
    [
        (NAMED.format("AUTO"), True, ["e0", "lo"], ["10.0.0.9", "localhost"]),
        (NAMED.format("auto"), False, ["lo"], ["10.0.0.9", "localhost"]),
        ('<DDSI2Service name="d"/>', True, ["e0", "lo"], ["localhost"]),
        (NAMED.format("e7"), True, ["e7"], ["10.0.0.9"]),
        ("", True, ["lo"], ["localhost"]),
    ],
)
def test_which_interfaces_a_configuration_means(
    machine: Machine, network: str, up: bool, interfaces_used: list[str], peers: list[str]
) -> None:
    if up:
        machine.set("e0", "10.0.0.1")
    configuration = interpret(parse(FILE.format(network=network).encode(), "f.xml", {})).configuration
    settings = configured_uri.uri_of(configuration, {})
    assert [each["value"] for each in interfaces._INTERFACE.finditer(settings)] == interfaces_used
    assert [part.partition('"')[0] for part in settings.split('<Peer Address="')[1:]] == peers
    assert configured_uri.is_automatic(configuration, {}) == (interfaces_used[-1] == "lo" and bool(network))
    assert configured_uri.uri_of(configuration, {"CYCLONEDDS_URI": "<x/>"}).endswith(",<x/>")
    assert not configured_uri.is_automatic(configuration, {"CYCLONEDDS_URI": "<x/>"})


def test_a_loopback_address_says_nothing_beside_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "_address", {"e0": "10.0.0.1", "lo": "127.0.0.1"}.__getitem__)
    for used, told in ((("e0", "lo"), "10.0.0.1"), (("lo",), "127.0.0.1")):
        assert interfaces.addresses_of(cyclone_uri(interfaces=used, environment={})) == (told,)
    monkeypatch.setattr(interfaces, "address_towards", lambda address, _: address)
    assert interfaces.reachable(["127.0.0.1:7410", "10.0.0.2:7410"]) == "10.0.0.2:7410"
    assert interfaces.reachable(["127.0.0.1:7410"]) == "127.0.0.1:7410"


@pytest.mark.parametrize(
    ("addresses", "reached", "refused"),
    [
        (("10.0.0.2", "10.0.0.1"), (), ("10.0.0.1", "10.0.0.2")),
        (("10.0.0.1", "10.0.0.2"), ("10.0.0.2:9",), ("10.0.0.1",)),
        (("fd00::1",), ("[fd00::1]:9",), ()),
        (("127.0.0.1", "::1"), (), ()),
    ],
)
def test_no_route_leads_to_an_address_that_cannot_be_sent_to(
    addresses: tuple[str, ...],
    reached: tuple[str, ...],
    refused: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interfaces, "address_towards", lambda one, other: one if one in reached else other)
    assert interfaces.without_route(addresses) == refused


@pytest.mark.parametrize(
    ("used", "flags", "told"),
    [
        (("e0", "lo"), 0x1003, "interface e0 has no carrier"),
        (("10.0.0.1", "127.0.0.1"), 0x1003, "interface e0 has no carrier"),
        (("e0", "lo"), 0x1002, "interface e0 is down"),
        (("e0", "lo"), 0x1043, ""),
        (("lo",), 0x1002, ""),
    ],
)
def test_the_loopback_interface_beside_another_carries_nothing_to_others(
    used: tuple[str, ...], flags: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings AUTO name both, and no host but this one is reached by loopback."""
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, "e0")])
    monkeypatch.setattr(interfaces, "_address", {"e0": "10.0.0.1", "lo": "127.0.0.1"}.__getitem__)
    monkeypatch.setattr(interfaces, "_flags", {"e0": flags, "lo": 0x49}.__getitem__)
    links = interfaces.links_of(cyclone_uri(interfaces=used, environment={}))
    assert interfaces.broken_links(links) == told
