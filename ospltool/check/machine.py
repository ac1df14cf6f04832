"""What this machine has, for rules about files that may be for it."""

from __future__ import annotations

import errno
import ipaddress
import socket


def has_address(name: str) -> bool:
    """Tell whether this machine has an interface of a name, or an address; true where that cannot be told."""
    if any(name == interface for _, interface in socket.if_nameindex()):
        return True
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(name).version == 6 else socket.AF_INET
    except ValueError:
        return False
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((name, 0))
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return True
