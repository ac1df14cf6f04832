"""Proof, before a node relies on them, that the private memory layouts are the ones we read."""

from __future__ import annotations

import os
from typing import Final

from engine.dds.errors import DdsError, UnsupportedCyclone

_TOPIC: Final = "ospltool_selfcheck"
_TIMES_NS: Final = (11, 12, 13)


def check_layouts() -> None:
    """Write, dispose and unregister one instance through our writer and tap, and compare every byte.

    It uses a domain of its own that talks to nobody, takes about 30 ms and leaves nothing behind.

    Raises:
        UnsupportedCyclone: `cyclonedds` is missing or not the supported version, or a layout differs.
    """
    from engine.dds.abi import SUPPORTED_VERSION

    try:
        difference = _difference()
    except DdsError as error:
        difference = str(error)
    if difference:
        raise UnsupportedCyclone(
            f"cyclonedds {SUPPORTED_VERSION} does not behave as expected on this machine: {difference}"
        )


def _difference() -> str:
    """What is not as expected; empty when all is well."""
    from engine.dataset.sample import DATA, DISPOSE, UNREGISTER
    from engine.dds.domains import free_domain_id
    from engine.dds.participant import NodeParticipant
    from engine.dds.qos import EndpointQos
    from engine.dds.tap import WRITER_GONE, Captured, CaptureReader
    from engine.dds.topics import Topic
    from engine.dds.uri import private_uri
    from engine.dds.wiretypes import SelfCheck
    from engine.dds.writer import RawWriter

    with (
        free_domain_id() as domain_id,
        NodeParticipant(domain_id, private_uri(), "selfcheck", os.urandom(16)) as participant,
    ):
        topic = Topic.of_class(participant, _TOPIC, SelfCheck)
        tap = CaptureReader(participant, topic, limit=8)
        writer = RawWriter(participant, topic, EndpointQos(history_depth=0, autodispose=False))
        whole = b"\0\1\0\0" + (7).to_bytes(4, "little") + b"\2\0\0\0x\0\0\0"
        key = (7).to_bytes(4, "little")
        key_only = b"\0\1\0\0" + key
        writer.write(whole, _TIMES_NS[0])
        writer.dispose(key_only, _TIMES_NS[1])
        writer.unregister(key_only, _TIMES_NS[2])
        writer.close()
        found = tap.drain()
        expected = [
            Captured(_TIMES_NS[0], writer.guid, DATA, key, whole),
            Captured(_TIMES_NS[1], writer.guid, DISPOSE, key, key_only),
            Captured(_TIMES_NS[2], writer.guid, UNREGISTER, key, key_only),
            Captured(0, writer.guid, WRITER_GONE, b"", b""),
        ]
    if found == expected:
        return ""
    return f"a tap gave {found} where {expected} was written"
