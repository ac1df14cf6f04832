"""Participants of other durability services, which keep their own data and never get history.

A group reader of an OpenSplice federation is durable like that of an application. It would take each
delivery for new writes and keep them again.
"""

from __future__ import annotations

from typing import Final

SERVICE_TOPICS: Final = frozenset(
    (
        "d_status",
        "d_capability",
        "d_nameSpacesRequest",
        "d_nameSpaces",
        "d_groupsRequest",
        "d_newGroup",
        "d_sampleRequest",
        "d_sampleChain",
        "d_deleteData",
        "d_durabilityStateRequest",
        "d_durabilityState",
        "d_historicalDataRequest",
        "d_historicalData",
    )
)
"""Topics of the durability protocol: a participant with their endpoints is a service or asks one itself."""


_VENDORS: Final = frozenset(bytes((1, low)) for low in range(1, 0x20) if low != 2)
"""Vendor ids of products other than OpenSplice, the start of their GUID prefixes (RTPS 2.5, 9.3.1.5)."""


def _is_federated(participant: bytes) -> bool:
    """Tell whether a GUID has OpenSplice's form.

    Its prefix is three numbers in network order: the random system id of the federation, a local id and a
    serial number. The last two are below 65,536.
    """
    return participant[4:6] == participant[8:10] == bytes(2) and participant[6:8] != bytes(2)


class ForeignServices:
    """The participants that are other products' durability services, or belong to a federation with one.

    Cyclone DDS does not tell the vendor of a participant. OpenSplice's (vendor 1.2) are recognised by their
    GUID, other services by the topics of their endpoints.
    """

    def __init__(self) -> None:
        self._services: dict[bytes, set[bytes]] = {}

    def endpoint_seen(self, participant: bytes, topic: str) -> bool:
        """Take in a new endpoint; return True if it first shows that its participant is a service."""
        if topic not in SERVICE_TOPICS:
            return False
        known = self._services.setdefault(_family(participant), set())
        known.add(participant)
        return len(known) == 1

    def gone(self, participant: bytes) -> None:
        """Forget a participant that left."""
        family = _family(participant)
        known = self._services.get(family, set())
        known.discard(participant)
        if not known:
            self._services.pop(family, None)

    def is_one(self, participant: bytes) -> bool:
        """Tell whether a participant is a service, or of an OpenSplice federation."""
        return _family(participant) in self._services or (
            _is_federated(participant) and participant[:2] not in _VENDORS
        )


def _family(participant: bytes) -> bytes:
    """Return the common part of the GUIDs of a federation; for other participants, the whole GUID."""
    return participant[:4] if _is_federated(participant) else participant
