"""Nodes and applications on several hosts: network namespaces joined by a bridge."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from engine.dds.uri import cyclone_uri
from tests.integration.conftest import own_domain
from tests.integration.lab import LEASE_S, Lab, Reader
from tests.integration.network import Network, network_of
from tests.integration.programs import Program
from tests.integration.watching import Watch


def lab_on(
    directory: Path,
    network: Network,
    *,
    multicast: str = "spdp",
    interfaces: Sequence[str] = ("e0",),
    lease_s: float = LEASE_S,
    participants: int = 20,
) -> Lab:
    """A lab in which all participants use these interfaces; nodes and programs need a prefix for their hosts.

    Args:
        multicast: value of General/AllowMulticast; if "false", participants name all hosts as peers.
        lease_s: silence in seconds after which a participant counts as gone.
        participants: highest number of participants that one host can have without multicast.
    """
    domain, tag = own_domain()
    uri = cyclone_uri(
        interfaces=interfaces,
        multicast=multicast,
        peers=network.addresses.values() if multicast == "false" else (),
        max_auto_participant_index=participants,
        lease_s=lease_s,
        spdp_interval_ms=500,
        tag=tag,
        environment={},
    )
    return Lab(directory, domain, tag, uri, watched=False)


class HostsLab:
    """One node on each host, n1 on host a and so on, watched from the first and the last of them.

    Args:
        multicast: value of General/AllowMulticast; if "false", participants name all hosts as peers.
        interfaces: names of the interfaces that all participants use.
        lease_s: silence in seconds after which a participant counts as gone.
        participants: highest number of participants that one host can have without multicast.
    """

    def __init__(
        self,
        directory: Path,
        network: Network,
        *,
        multicast: str,
        interfaces: Sequence[str] = ("e0",),
        lease_s: float = LEASE_S,
        participants: int = 40,
    ) -> None:
        self.network = network
        self.lab = lab_on(
            directory,
            network,
            multicast=multicast,
            interfaces=interfaces,
            lease_s=lease_s,
            participants=participants,
        )
        self.hosts = {f"n{number}": host for number, host in enumerate(network.addresses, 1)}
        self.names = tuple(self.hosts)
        self.lab.prefixes = {name: network.on(host) for name, host in self.hosts.items()}
        self.views: dict[str, Watch] = {}

    def start(self) -> None:
        """Start the configured nodes; they are complete, and equal, when this returns."""
        self.views = {name: self.lab.watch_from(name) for name in {self.names[0], self.names[-1]}}
        self.lab.start(*self.names)
        self.wait_complete(self.names[-1], *self.names)

    def start_seen(self, *names: str) -> Watch:
        """Start configured nodes, watched from the first one; they are complete when this returns."""
        view = self.lab.watch_from(names[0])
        self.views = {names[0]: view}
        self.lab.start(*names)
        self.wait_complete(names[0], *names)
        return view

    def wait_complete(self, seen_from: str, *names: str) -> None:
        view = self.views[seen_from]
        view.wait_for(f"{names} are complete and equal", lambda: view.are_complete(*names))

    def writer(self, name: str, **options: Any) -> Program:
        """A writer on the host of a node that stays."""
        program = self.lab.program("writer", prefix=self.lab.prefixes[name], **options)
        program.answer("done")
        return program

    def reader(self, name: str, **options: Any) -> Reader:
        return self.lab.reader(prefix=self.lab.prefixes[name], **options)


@contextlib.contextmanager
def hosts_lab(directory: Path, hosts: str, *, multicast: str, lease_s: float = LEASE_S) -> Iterator[HostsLab]:
    """A lab for a test, on hosts named by a letter each; removed with everything in it."""
    network = network_of(tuple(hosts))
    try:
        made = HostsLab(directory, network, multicast=multicast, lease_s=lease_s)
        try:
            yield made
        finally:
            made.lab.close()
    finally:
        network.close()
