"""The Cyclone DDS settings that a node's configuration asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.dds.interfaces import suitable_interface
from engine.dds.uri import cyclone_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.config.settings import Configuration

_LOOPBACK: Final = "lo"
_LOCALHOST: Final = "localhost"


def is_automatic(configuration: Configuration, environ: Mapping[str, str]) -> bool:
    """Whether the node chooses its network interface itself (NetworkInterfaceAddress AUTO)."""
    ddsi = configuration.ddsi
    is_given = bool(environ.get("CYCLONEDDS_URI", "").strip())
    return not is_given and ddsi.is_configured and ddsi.network_interface.lower() == "auto"


def uri_of(configuration: Configuration, environ: Mapping[str, str]) -> str:
    """The Cyclone settings: CYCLONEDDS_URI, else from the DDSI2 part, else loopback.

    With NetworkInterfaceAddress AUTO it is the first suitable interface, and loopback beside it, so that
    whoever uses only that on this machine is met, and nobody is lost while there is no network.
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
