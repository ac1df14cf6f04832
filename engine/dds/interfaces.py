"""Network interfaces and addresses that Cyclone DDS settings select on this machine."""

from __future__ import annotations

import fcntl
import ipaddress
import re
import socket
import struct
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from engine.dds.uri import settings_text

_GET_ADDRESS: Final = 0x8915
"""SIOCGIFADDR: the IPv4 address of an interface (netdevice(7))."""
_GET_FLAGS: Final = 0x8913
"""SIOCGIFFLAGS: the flags of an interface."""
_UP, _LOOPBACK, _RUNNING, _MULTICAST = 1, 8, 0x40, 0x1000
_DISCARD: Final = 9
"""A port (RFC 863) to ask for a route; nothing is sent to it."""
_LOCALHOST: Final = "127.0.0.1"
_LOOPBACK_NAME: Final = "lo"
_NO_CARRIER: Final = "has no carrier"
_LINK_LOCAL: Final = "20"
"""The scope of an address that an interface gives itself."""
_INTERFACE: Final = re.compile(
    r"<NetworkInterface\b[^>]*?\b(?P<kind>name|address)\s*=\s*[\"'](?P<value>[^\"']+)"
)
_PEER: Final = re.compile(r"<Peer\b[^>]*?\bAddress\s*=\s*[\"'](?P<value>\d[\d.]*)[\"']", re.IGNORECASE)


def first_interface(uri: str) -> str:
    """Return the name or address of the first network interface in the settings; empty if they name none."""
    found = _INTERFACE.search(settings_text(uri))
    return found["value"] if found else ""


def unusable_interface(uri: str) -> tuple[str, str]:
    """Return the first network interface of the settings that cannot be opened, and why; empty without one.

    It is a name or an IPv4 address, and "is not there", "is down" or "has no address".
    """
    problems = ((link, _problem(link)) for link in _named(uri))
    return next(((link, why) for link, why in problems if why and why != _NO_CARRIER), ("", ""))


def available() -> list[str]:
    """List the network interfaces that are up with their IPv4 addresses, for a message."""
    addresses = {name: _address(name) for _, name in socket.if_nameindex() if _flags(name) & _UP}
    return [f"{name} ({address})" for name, address in addresses.items() if address]


def interface_of(uri: str) -> str:
    """Return the name or address of the network interface that a participant with these settings uses.

    If the settings name none, it is `suitable_interface`, as in Cyclone DDS, or the loopback interface.
    """
    named = first_interface(uri)
    if named:
        return named
    return suitable_interface() or _LOOPBACK_NAME


def links_of(uri: str) -> tuple[str, ...]:
    """Return the names or addresses of all network interfaces that a participant with these settings uses.

    If they name none and none is suitable, it is those that may become so. The loopback interface, which
    always carries, counts only if it is the only one.
    """
    others = [name for _, name in socket.if_nameindex() if not _flags(name) & _LOOPBACK]
    named = _named(uri)
    named = tuple(link for link in named if not _flags(_name(link)) & _LOOPBACK) or named
    return named or tuple(filter(None, [suitable_interface()])) or tuple(others) or (_LOOPBACK_NAME,)


def broken_links(links: Sequence[str]) -> str:
    """Return what is wrong with these interfaces if none of them carries anything; else nothing."""
    problems = [(link, _problem(link)) for link in links]
    if not all(why for _, why in problems):
        return ""
    return " and ".join(f"interface {_name(link) or link} {why}" for link, why in problems)


def without_route(addresses: Iterable[str]) -> tuple[str, ...]:
    """Return those of the addresses to which this machine refuses to send, in order; loopback does not count.

    A route may be missing, or refuse (blackhole, prohibit).
    """
    others = beyond_loopback(sorted(set(addresses)))
    return tuple(one for one in others if not address_towards(f"{_bracketed(one)}:{_DISCARD}", ""))


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _named(uri: str) -> tuple[str, ...]:
    """Return the names or addresses of the network interfaces in the settings."""
    return tuple(found["value"] for found in _INTERFACE.finditer(settings_text(uri)))


def _name(link: str) -> str:
    """Return the name of an interface given by name or address; empty for an address of none."""
    if not link[:1].isdigit():
        return link
    return next((name for _, name in socket.if_nameindex() if _address(name) == link), "")


def _problem(link: str) -> str:
    """Return what is wrong with an interface given by name or address; empty for nothing, or if unknown."""
    if ":" in link:
        return ""
    name = _name(link)
    flags = _flags(name) if name else 0
    if not flags:
        return "is not there"
    if not flags & _UP:
        return "is down"
    if not _address(name) and not _has_ipv6(name):
        return "has no address"
    return "" if flags & _RUNNING else _NO_CARRIER


def _has_ipv6(name: str) -> bool:
    """Return whether an interface has an IPv6 address beyond the one that it gives itself (if_inet6)."""
    try:
        lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    columns = [line.split() for line in lines]
    return any(each[5] == name and each[3] != _LINK_LOCAL for each in columns if len(each) > 5)


def suitable_interface() -> str:
    """Return the name of the interface that AUTO means now; empty if only loopback is usable.

    It is the first that is up, has an IPv4 address, reaches other machines and can multicast; if none can
    multicast, the first that meets the other conditions.
    """
    names = [name for _, name in socket.if_nameindex()]
    suitable = [name for name in names if _flags(name) & _UP and not _flags(name) & _LOOPBACK]
    suitable = [name for name in suitable if address_of(name) != _LOCALHOST]
    return min(suitable, key=lambda name: not _flags(name) & _MULTICAST, default="")


def addresses_of(uri: str) -> tuple[str, ...]:
    """Return the IPv4 addresses of a participant's interfaces, by which others know it, in order.

    A loopback address, which every host has, appears only if there is no other.
    """
    return known_addresses(uri) or (_LOCALHOST,)


def known_addresses(uri: str) -> tuple[str, ...]:
    """Return what `addresses_of` returns, and nothing for interfaces without an IPv4 address."""
    used = _named(uri) or (interface_of(uri),)
    found = tuple(dict.fromkeys(filter(None, map(_known_address, used))))
    return beyond_loopback(found) or found


def beyond_loopback(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses that are not loopback addresses."""
    return tuple(host for host in hosts if not host.startswith("127.") and host != "::1")


def peers_of(uri: str) -> tuple[str, ...]:
    """Return the IPv4 addresses of the peers that the settings name, without loopback addresses and ports."""
    return beyond_loopback([found["value"] for found in _PEER.finditer(settings_text(uri))])


def _flags(interface: str) -> int:
    answer = _ask(interface, _GET_FLAGS)
    return int.from_bytes(answer[16:18], sys.byteorder) if answer else 0


def reachable(addresses: Sequence[str]) -> str:
    """Return the first `host:port` to which this machine has a route; without a route, the first of all.

    Loopback addresses count only if there are no others, because the participant may be on another host.
    """
    wanted = beyond_loopback(addresses) or addresses
    return next((each for each in wanted if address_towards(each, "")), wanted[0])


def address_towards(address: str, otherwise: str) -> str:
    """Return the local address that reaches a `host:port`; `otherwise` without a route or an IP address."""
    host, _, port = address.rpartition(":")
    try:
        # A name from the network must not be looked up: its sender would choose what a resolver is asked.
        known = ipaddress.ip_address(host.strip("[]"))
        family = socket.AF_INET6 if known.version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(known), int(port)))  # sends nothing: it only asks for the route
            return str(probe.getsockname()[0])
    except (OSError, ValueError, TypeError, OverflowError):  # TypeError: a scope that cannot be encoded
        return otherwise


def address_of(interface: str) -> str:
    """Return the IPv4 address of an interface given by name or address; 127.0.0.1 for an unknown one."""
    return _known_address(interface) or _LOCALHOST


def _known_address(interface: str) -> str:
    return interface if is_address(interface) else _address(interface)


def is_address(text: str) -> bool:
    """Return whether a text is an IP address, without a scope."""
    try:
        return bool(ipaddress.ip_address(text)) and "%" not in text
    except ValueError:
        return False


def _address(name: str) -> str:
    answer = _ask(name, _GET_ADDRESS)
    return socket.inet_ntoa(answer[20:24]) if answer else ""


def _ask(interface: str, question: int) -> bytes:
    """Return the kernel's answer about an interface; empty if it has none."""
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # An interface may go away between the list and the question, or have no IPv4 address
            # (EADDRNOTAVAIL).
            return fcntl.ioctl(probe.fileno(), question, request)
        # IPv6 may be switched off: then the file is missing, and no interface has an address of it.
        except OSError:
            return b""
