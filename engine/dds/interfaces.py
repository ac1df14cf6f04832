"""Which address of this machine Cyclone DDS settings mean."""

from __future__ import annotations

import fcntl
import re
import socket
import struct
from typing import Final

from engine.dds.uri import settings_text

_GET_ADDRESS: Final = 0x8915
"""SIOCGIFADDR: the IPv4 address of an interface (netdevice(7))."""
_INTERFACE: Final = re.compile(
    r"<NetworkInterface\b[^>]*?\b(?P<kind>name|address)\s*=\s*[\"'](?P<value>[^\"']+)"
)


def first_interface(uri: str) -> str:
    """The name or address of the first network interface in the settings; empty when they leave it open."""
    found = _INTERFACE.search(settings_text(uri))
    return found["value"] if found else ""


def address_towards(address: str, otherwise: str) -> str:
    """The address of ours from which a `host:port` is reached; `otherwise` where there is no way to it."""
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host.strip("[]"), int(port)))  # sends nothing: it only asks for the route
            return str(probe.getsockname()[0])
        except (OSError, ValueError):
            return otherwise


def address_of(interface: str) -> str:
    """The IPv4 address of an interface given by name or address; the loopback's for an unknown one."""
    if not interface or interface[:1].isdigit():
        return interface or "127.0.0.1"
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _GET_ADDRESS, request)
        except OSError:
            return "127.0.0.1"
    return socket.inet_ntoa(answer[20:24])
