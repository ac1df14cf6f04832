"""The Cyclone DDS settings of a node's configuration, and whether AUTO means another interface by now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.config.problems import quoted
from engine.dds.interfaces import address_of, available, suitable_interface, unusable_interface
from engine.dds.uri import cyclone_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.config.settings import Configuration

_LOOPBACK: Final = "lo"
_LOCALHOST: Final = "localhost"
_SETTING: Final = "//OpenSplice/DDSI2Service/General/NetworkInterfaceAddress"


def is_automatic(configuration: Configuration, environ: Mapping[str, str]) -> bool:
    """Tell whether the node chooses its network interface itself (NetworkInterfaceAddress AUTO)."""
    ddsi = configuration.ddsi
    is_given = bool(environ.get("CYCLONEDDS_URI", "").strip())
    return not is_given and ddsi.is_configured and ddsi.network_interface.lower() == "auto"


def uri_of(configuration: Configuration, environ: Mapping[str, str]) -> str:
    """Return the Cyclone settings: CYCLONEDDS_URI, or else from the DDSI2 part, or else loopback.

    With NetworkInterfaceAddress AUTO they use the first suitable interface and loopback, so that the node
    meets local participants that use only loopback, also while there is no network.
    """
    ddsi = configuration.ddsi
    if not ddsi.is_configured:
        return cyclone_uri(environment=environ)
    multicast = ddsi.allow_multicast.lower()
    if is_automatic(configuration, environ):
        interface = suitable_interface()
        return cyclone_uri(
            interfaces=(interface, _LOOPBACK) if interface else (_LOOPBACK,),
            multicast=multicast,
            peers=dict.fromkeys((*ddsi.peers, _LOCALHOST)),
            environment=environ,
        )
    return cyclone_uri(
        interfaces=(ddsi.network_interface,),
        multicast=multicast,
        peers=ddsi.peers if ddsi.peers or multicast != "false" else (_LOCALHOST,),
        environment=environ,
    )


def interface_fault(configuration: Configuration | None, uri: str) -> str:
    """Return a message if a network interface of these settings is missing, down or without an address.

    It is empty otherwise.

    Args:
        configuration: of which the settings are; None without one.
        uri: settings of Cyclone DDS.
    """
    named, why = unusable_interface(uri)
    if not named:
        return ""
    subject, is_ours = "CYCLONEDDS_URI", False
    if configuration is not None:
        origin = configuration.origin_of(_SETTING)
        is_ours = not origin.is_default and configuration.ddsi.network_interface == named
        subject = f"{origin}: {_SETTING}" if is_ours else subject
    others = "; AUTO takes the first suitable one, CYCLONEDDS_URI may name another" if is_ours else ""
    if why != "is not there":
        return f"{subject}: network interface {quoted(named)} {why}; usable: {', '.join(available())}{others}"
    return (
        f"{subject}: this machine has no network interface {quoted(named)};"
        f" it has {', '.join(available())}{others}"
    )


# Chosen: one ioctl for each interface is cheap, and a cable that is moved by hand takes longer.
INTERFACE_PERIOD_S: Final = 1.0
"""Period of checks of the interfaces."""
# With one, a node would move to an interface that has its address but not yet its routes; each more delays
# it by a period.
INTERFACE_LOOKS: Final = 2
"""Consecutive checks that must find the same interface: it comes up in several steps."""


class InterfaceWatch:
    """Finds out when AUTO means another interface than the one that the node uses.

    A node does not move because its interface is down or has lost its address: that may be a pulled cable.
    """

    def __init__(self) -> None:
        self._name = suitable_interface()
        self._address = address_of(self._name) if self._name else ""
        self._due_s = 0.0
        self._found: tuple[str, str] | None = None
        self._times = 0

    def next_interface(self, now: float) -> str:
        """Return name and address of the interface to move to; empty if the node should stay."""
        if now < self._due_s:
            return ""
        self._due_s = now + INTERFACE_PERIOD_S
        name = suitable_interface()
        found = name, address_of(name)
        stays = not name or found == (self._name, self._address)
        if stays or (self._name and address_of(self._name) == self._address):
            self._found, self._times = None, 0
            return ""
        self._times = self._times + 1 if found == self._found else 1
        self._found = found
        return f"{name} ({found[1]})" if self._times >= INTERFACE_LOOKS else ""
