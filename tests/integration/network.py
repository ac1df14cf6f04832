"""A network of hosts on this machine: one network namespace for each, joined by a bridge, links to cut.

Nothing leaves the machine: the bridge has no way out. Needs permission to make network namespaces.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

_networks = itertools.count()


class NotPermitted(Exception):
    """Network namespaces cannot be made here; the message says why."""


class Network:
    """Hosts `a`, `b`, ... with an interface `e0` each."""

    def __init__(self, hosts: tuple[str, ...]) -> None:
        prefix = f"ot{os.getpid() % 100_000}n{next(_networks)}"
        self._bridge = f"{prefix}b"
        self._second = f"{prefix}s"
        self._has_second = False
        self._other = f"{prefix}t"
        self._spaces = {host: f"{prefix}{host}" for host in hosts}
        self._ports = {host: f"{prefix}{host}p" for host in hosts}
        self.addresses = {host: f"10.77.0.{number}" for number, host in enumerate(hosts, 1)}
        try:
            self._make()
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            self.close()
            text = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
            raise NotPermitted(text.strip()) from None

    def _make(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge", "mcast_snooping", "0")
        _ip("link", "set", self._bridge, "up")
        for host, space in self._spaces.items():
            port = self._ports[host]
            _ip("netns", "add", space)
            _ip("link", "add", port, "type", "veth", "peer", "name", "e0", "netns", space)
            _ip("link", "set", port, "master", self._bridge, "up")
            _ip("-n", space, "addr", "add", f"{self.addresses[host]}/24", "dev", "e0")
            _ip("-n", space, "link", "set", "e0", "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def add_second_interfaces(self) -> None:
        """Give each host an interface `e1` on another network, 10.78.0.0; the numbers are those of `e0`."""
        _ip("link", "add", self._other, "type", "bridge", "mcast_snooping", "0")
        _ip("link", "set", self._other, "up")
        for host, space in self._spaces.items():
            port = f"{self._ports[host]}1"
            _ip("link", "add", port, "type", "veth", "peer", "name", "e1", "netns", space)
            _ip("link", "set", port, "master", self._other, "up")
            _ip("-n", space, "addr", "add", f"{self.second_address(host)}/24", "dev", "e1")
            _ip("-n", space, "link", "set", "e1", "up")

    def second_address(self, host: str) -> str:
        """The address of a host's `e1`."""
        return self.addresses[host].replace("10.77.", "10.78.")

    def on(self, host: str) -> tuple[str, ...]:
        """What goes before a command so that it runs on a host."""
        return ("ip", "netns", "exec", self._spaces[host])

    def space(self, host: str) -> str:
        """The network namespace of a host."""
        return self._spaces[host]

    def cut(self, host: str) -> None:
        """Pull the plug of a host."""
        _ip("link", "set", self._ports[host], "down")

    def heal(self, host: str) -> None:
        _ip("link", "set", self._ports[host], "up")

    def part(self, host: str, other: str) -> None:
        """Let two hosts not hear each other any more, by unicast or multicast; all others hear both."""
        for one, address in ((host, self.addresses[other]), (other, self.addresses[host])):
            # A source to which no route leads is refused where the way back is looked at (RFC 3704).
            _run(*self.on(one), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter")
            _ip("-n", self._spaces[one], "route", "add", "blackhole", f"{address}/32")

    def reunite(self, host: str, other: str) -> None:
        """Let two hosts that were parted hear each other again."""
        for one, address in ((host, self.addresses[other]), (other, self.addresses[host])):
            _ip("-n", self._spaces[one], "route", "del", "blackhole", f"{address}/32")

    def silence(self, host: str, other: str) -> None:
        """Let nothing of a host reach another one, which it goes on hearing."""
        for interface in ("all", "e0"):
            setting = f"/proc/sys/net/ipv4/conf/{interface}/rp_filter"
            _run(*self.on(host), "sh", "-c", f"echo 0 > {setting}")
        _ip("-n", self._spaces[host], "route", "add", "blackhole", f"{self.addresses[other]}/32")

    def end_silence(self, host: str, other: str) -> None:
        """Let a host be heard again."""
        _ip("-n", self._spaces[host], "route", "del", "blackhole", f"{self.addresses[other]}/32")

    def slow_down(self, host: str, kbit_s: int) -> None:
        """Let a host send no faster than that; what waits is not lost. Skips the test where `tc` cannot."""
        tc = shutil.which("tc", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        if tc is None:
            pytest.skip("tc (iproute2) is not installed: no link can be slowed down")
        try:
            _run(*self.on(host), tc, "qdisc", "add", "dev", "e0", "root", "tbf", "rate", f"{kbit_s}kbit",
                 "burst", "16kb", "limit", "64mb")  # fmt: skip
        except subprocess.CalledProcessError as error:
            pytest.skip(f"tc can not slow a link down here: {error.stderr.strip()}")

    def split(self, *hosts: str) -> None:
        """Cut these hosts off from the others, but not from each other."""
        if not self._has_second:
            _ip("link", "add", self._second, "type", "bridge", "mcast_snooping", "0")
            _ip("link", "set", self._second, "up")
            self._has_second = True
        for host in hosts:
            _ip("link", "set", self._ports[host], "master", self._second)

    def join(self, *hosts: str) -> None:
        """Put hosts that were cut off back."""
        for host in hosts:
            _ip("link", "set", self._ports[host], "master", self._bridge)

    def close(self) -> None:
        """Remove everything that was made; called with half of it, too."""
        for command in self._removals():
            subprocess.run(command, check=False, capture_output=True, timeout=10)

    def _removals(self) -> Iterator[list[str]]:
        for space in self._spaces.values():
            yield ["ip", "netns", "del", space]
        yield ["ip", "link", "del", self._bridge]
        yield ["ip", "link", "del", self._other]
        if self._has_second:
            yield ["ip", "link", "del", self._second]


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=10)


def network_of(hosts: tuple[str, ...]) -> Network:
    """A network for a test; where none can be made the test is skipped, and says why."""
    try:
        return Network(hosts)
    except NotPermitted as reason:
        pytest.skip(f"no network namespaces here: {reason}")
