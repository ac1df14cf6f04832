"""The Cyclone DDS settings that a node's configuration asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.dds.uri import cyclone_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.config.settings import Configuration


def uri_of(configuration: Configuration, environ: Mapping[str, str]) -> str:
    """The Cyclone settings: CYCLONEDDS_URI, else from the DDSI2 part, else loopback."""
    ddsi = configuration.ddsi
    if not ddsi.is_configured or ddsi.network_interface.lower() == "auto":
        return cyclone_uri(environment=environ)
    multicast = ddsi.allow_multicast.lower()
    return cyclone_uri(
        interfaces=(ddsi.network_interface,),
        multicast=multicast,
        peers=ddsi.peers if ddsi.peers or multicast != "false" else ("localhost",),
        environment=environ,
    )
