"""Ports at which participants look for others, and how to open a participant that has none of them."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from engine.dds.participant import NodeParticipant

_FIRST: Final = 7410
_OF_A_DOMAIN: Final = 250
_OF_A_PARTICIPANT: Final = 2
"""The first port for discovery in domain 0, and the distances to the next ones (DDSI-RTPS 9.6.1)."""
# MaxAutoParticipantIndex 120 (`uri.DEFAULT_MAX_PARTICIPANT_INDEX`) and the index 0.
_PARTICIPANTS: Final = 121
"""Participants of a host that others look for; the default of a node."""
# The searched ports are some hundred among tens of thousands that the kernel gives out, so a second attempt
# is rare. Chosen.
ATTEMPTS: Final = 64
"""How often a participant is opened until the kernel has given it other ports."""

_opening = threading.Lock()  # what is new must be the sockets of this participant, not of another thread's


def searched_ports(wire_domain: int, target: str) -> frozenset[int]:
    """Return the ports at which participants of a domain look for others, on each host that they know.

    Args:
        wire_domain: the domain id.
        target: the metatraffic locator of one of them, as `host:port`. If their settings give the domain
            other ports, these are around it.
    """
    reach = _OF_A_PARTICIPANT * _PARTICIPANTS
    first = _FIRST + _OF_A_DOMAIN * wire_domain
    near = int(target.rpartition(":")[2])
    return frozenset(range(first, first + reach, _OF_A_PARTICIPANT)).union(
        range(near - reach, near + reach, _OF_A_PARTICIPANT)
    )


def udp_addresses() -> dict[int, tuple[str, int]]:
    """Return address and port of this process's UDP sockets over IPv4, by the inode of the socket."""
    found: dict[int, tuple[str, int]] = {}
    for name in (path.name for path in Path("/dev/fd").iterdir()):
        with contextlib.suppress(OSError):  # another thread may have closed it
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                with socket.fromfd(int(name), socket.AF_INET, socket.SOCK_DGRAM) as one:
                    if _is_udp(one):
                        found[status.st_ino] = one.getsockname()
    return found


def _is_udp(one: socket.socket) -> bool:
    kinds = (one.getsockopt(socket.SOL_SOCKET, each) for each in (socket.SO_DOMAIN, socket.SO_TYPE))
    return tuple(kinds) == (socket.AF_INET, socket.SOCK_DGRAM)


def open_unsearched(open_one: Callable[[], NodeParticipant], searched: frozenset[int]) -> NodeParticipant:
    """Open a participant, in a domain of its own, that has no socket at one of these ports.

    The kernel chooses the ports: for domains 101 to 214, also among those at which participants with named
    peers look for others. Cyclone DDS answers on each of its sockets, and such a participant would be found
    by all of them. After `ATTEMPTS` it is used as it is.
    """
    for attempt in range(1, ATTEMPTS + 1):
        with _opening:
            before = udp_addresses()
            participant = open_one()
            new = {port for inode, (_, port) in udp_addresses().items() if inode not in before}
        if attempt == ATTEMPTS or searched.isdisjoint(new):
            break
        participant.close()
    return participant
