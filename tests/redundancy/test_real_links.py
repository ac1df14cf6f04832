"""Persistence services on hosts of their own, with links that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.dds.uri import cyclone_uri
from tests.integration.conftest import own_domain
from tests.integration.lab import LEASE_S, Lab
from tests.integration.network import Network, network_of
from tests.integration.programs import Program
from tests.redundancy.replicas import Replicas, not_before, write

pytestmark = [pytest.mark.dds, pytest.mark.netns]

HOSTS = ("a", "b", "c")
COUNT = 50
TURNS = 4


@pytest.fixture
def network() -> Iterator[Network]:
    made = network_of(HOSTS)
    yield made
    made.close()


@pytest.fixture
def replicas(tmp_path: Path, network: Network) -> Iterator[Replicas]:
    """One replica on each host, named like it."""
    domain, tag = own_domain()
    uri = cyclone_uri(
        interfaces=["e0"],
        peers=network.addresses.values(),
        max_auto_participant_index=20,
        lease_s=LEASE_S,
        spdp_interval_ms=300,
        tag=tag,
        environment={},
    )
    lab = Lab(tmp_path, domain, tag, uri, watched=False)
    made = Replicas(lab, watched=False)
    for host in HOSTS:
        made.launch(host, prefix=network.on(host))
    yield made
    made.close()
    lab.close()


def test_an_oscillating_link_changes_nothing_at_the_end(network: Network, replicas: Replicas) -> None:
    writers = {host: writer_on(network, replicas, host) for host in HOSTS[:2]}
    for host, writer in writers.items():
        writer.answer("done")
        write(writer, {"count": COUNT, "time": 1_000, "first": COUNT * HOSTS.index(host)})
    replicas.wait_equal(*HOSTS, count=2 * COUNT)
    for turn in range(1, TURNS + 1):
        network.cut("c")
        for host, writer in writers.items():
            first = COUNT * HOSTS.index(host)
            write(writer, {"count": COUNT, "time": 1_000 + 100 * turn, "first": first, "value": turn})
        network.heal("c")
    replicas.wait_equal(*HOSTS, count=2 * COUNT, where=not_before(1_000 + 100 * TURNS))
    assert replicas.stop(*HOSTS) == [0, 0, 0]


def writer_on(network: Network, replicas: Replicas, host: str) -> Program:
    return replicas.lab.program("writer", prefix=network.on(host), readers=3)
