"""What is confirmed after links were cut, between all nodes and the writer or one of them, on real hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.dds.uri import cyclone_uri
from tests.client.applications import ClientProgram, done
from tests.client.places import ClientLab
from tests.client.test_disposed_meanwhile import (
    AT_ONCE,
    COUNT,
    check_none_alive,
    dispose,
    wait_until_forgotten,
)
from tests.integration.configurations import Settings
from tests.integration.conftest import own_domain
from tests.integration.lab import LEASE_S
from tests.integration.network import Network, network_of
from tests.integration.watching import ProgramSource, Watch

pytestmark = [pytest.mark.dds, pytest.mark.netns]

NODES = {"n1": "a", "n2": "b"}
WRITER = "c"
CASTS = ("unicast", "multicast")


class Hosts(ClientLab):
    """Two nodes and an application, each on a host of its own."""

    def __init__(self, directory: Path, network: Network, cast: str) -> None:
        domain, tag = own_domain()
        uri = cyclone_uri(
            interfaces=["e0"],
            multicast="true" if cast == "multicast" else "false",
            peers=[] if cast == "multicast" else network.addresses.values(),
            max_auto_participant_index=12,
            lease_s=LEASE_S,
            spdp_interval_ms=300,
            tag=f"cuts-{tag}",
            environment={},
        )
        super().__init__(directory, domain, f"cuts-{tag}", uri, watched=False)
        self.network = network
        self.prefixes = {name: network.on(host) for name, host in NODES.items()}

    def start_both(self, hears: tuple[str, ...] = tuple(NODES), **options: Any) -> ClientProgram:
        """Both nodes are complete, and those that an application can hear match its writer."""
        for name in NODES.keys() - set(hears):
            self.network.part(NODES[name], WRITER)
        for name, priority in zip(NODES, (200, 100), strict=True):
            self.configure(name, Settings().with_priority(priority))
        self.start(*NODES)
        eyes = self.program("watch", prefix=self.prefixes["n2"])
        eyes.answer("ready")
        self.watch = Watch(ProgramSource(eyes))
        self.watch.check = self.check
        self.seen.wait_for("both are complete", lambda: self.seen.are_complete(*NODES))
        keeper = self.client_program("keeper", prefix=self.network.on(WRITER), **options)
        done(keeper, matched=len(hears))
        return keeper

    def held(self, name: str) -> list[bytes]:
        return self.on_disk(name).get(("stock", "Reading"), [])


@pytest.fixture(params=CASTS)
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hosts]:
    network = network_of((*NODES.values(), WRITER))
    made = Hosts(tmp_path, network, request.param)
    yield made
    made.close()
    network.close()


def test_what_no_node_has_is_not_confirmed_after_a_cut(hosts: Hosts) -> None:
    keeper = hosts.start_both(plain=True)
    done(keeper, write=[0, 10])
    assert done(keeper, wait=20, nodes=2)["stored"] == ["n1", "n2"]
    hosts.network.cut(WRITER)
    done(keeper, write=[10, 10])
    done(keeper, matched=0)
    hosts.network.heal(WRITER)
    done(keeper, matched=2)
    said = done(keeper, wait=4, nodes=2)
    assert said.get("error") == "NotStored", said
    assert said["missing"] == [["n1", "CANNOT_TELL", 0], ["n2", "CANNOT_TELL", 0]]
    hosts.stop("n1", "n2")
    assert [len(hosts.held(name)) for name in NODES] == [10, 10]


def test_a_durable_writer_hands_over_what_both_nodes_missed_once_and_as_it_was(hosts: Hosts) -> None:
    keeper = hosts.start_both(nodes=2)
    reader = hosts.reader(prefix=hosts.prefixes["n2"])
    reader.wait(0)
    done(keeper, write=[0, 10])
    hosts.network.cut(WRITER)
    done(keeper, write=[10, 10])
    done(keeper, dispose=[3, 1])
    done(keeper, matched=0)
    hosts.network.heal(WRITER)
    assert done(keeper, flush=30) == {}
    counters = done(keeper, counters=1)["counters"]
    assert (counters["written"], counters["stored"], counters["pending"]) == (21, 21, 0)
    assert counters["handed_over"] >= 11
    told = [int(each["count"]) for name in NODES for each in hosts.trace(name, "client.handed-over")]
    assert sum(told) >= 11
    late = hosts.reader(prefix=hosts.prefixes["n1"])
    late.wait_instances(20)
    assert late.tally()["states"].get("disposed") == 1
    assert reader.tally()["arrivals"] >= 10
    hosts.stop("n1", "n2")
    digests = [sorted(hosts.held(name)) for name in NODES]
    assert len(digests[0]) == len(set(digests[0])) == 21
    assert digests[0] == digests[1]


def test_a_writer_that_one_node_cannot_hear_is_confirmed_by_the_other_and_later_by_both(
    hosts: Hosts,
) -> None:
    keeper = hosts.start_both(nodes=2)
    done(keeper, write=[0, 10])
    assert done(keeper, flush=20) == {}
    hosts.network.part("a", WRITER)
    done(keeper, write=[10, 10])
    done(keeper, matched=1)
    assert done(keeper, ask=10, timeout=20, nodes=1)["stored"] == ["n2"]
    said = done(keeper, flush=1)
    assert said["error"] == "NotStored"
    assert [fact[1:] for fact in said["missing"]] == [["TOO_FEW_NODES", 10]]
    hosts.network.reunite("a", WRITER)
    assert done(keeper, flush=30) == {}
    hosts.stop("n1", "n2")
    assert [len(set(hosts.held(name))) for name in NODES] == [20, 20]


@pytest.mark.parametrize("hears", [("n1", "n2"), ("n2",)], ids=["both", "not_the_master"])
def test_what_others_dispose_during_a_cut_does_not_come_back(hosts: Hosts, hears: tuple[str, ...]) -> None:
    keeper = hosts.start_both(hears, nodes=len(hears), **AT_ONCE)
    done(keeper, write=[0, COUNT])
    assert done(keeper, flush=20) == {}
    hosts.seen.wait_for("both have it", lambda: [hosts.seen.stored(name) for name in NODES] == [COUNT] * 2)
    for name in hears:
        hosts.network.part(NODES[name], WRITER)
    done(keeper, write=[0, COUNT], value=7)
    done(keeper, matched=0)
    dispose(hosts, prefix=hosts.prefixes["n2"])
    wait_until_forgotten(hosts, "n1", "n2", prefix=hosts.prefixes["n2"])
    for name in hears:
        hosts.network.reunite(NODES[name], WRITER)
    done(keeper, matched=len(hears))
    assert done(keeper, flush=30) == {}
    everything = 4 * COUNT  # two writes, the dispose and the unregister of each instance

    def is_everywhere() -> bool:
        return {hosts.seen.samples(name) for name in NODES} in ({everything}, {0})

    hosts.seen.wait_for("both have it, or have forgotten it", is_everywhere)
    check_none_alive(hosts, prefix=hosts.prefixes["n1"])
