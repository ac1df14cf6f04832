"""Participants of other durability services: they keep their own data, and history is never given to them.

A group reader of a real OpenSplice federation is durable like that of an application. Whatever it is given
it takes for new writes and keeps, once more with each delivery.
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
"""Topics of the durability protocol: who has endpoints of them is a service, or asks one by itself."""


_VENDORS: Final = frozenset(bytes((1, low)) for low in range(1, 0x20) if low != 2)
"""Vendor ids with which the GUID prefixes of other products begin (RTPS 2.5, 9.3.1.5)."""


def _is_federated(participant: bytes) -> bool:
    """Whether a GUID is made as OpenSplice makes them.

    Its prefixes are three numbers in network order: the system id of the federation, drawn at random, a local
    id and a serial number, of which the last two stay below 65,536.
    """
    return participant[4:6] == participant[8:10] == bytes(2) and participant[6:8] != bytes(2)


class ForeignServices:
    """The participants that are durability services of another make, or of a federation that has one.

    Cyclone DDS does not tell the vendor of a participant. One of OpenSplice (vendor 1.2) is recognised by its
    GUID; any other service by the topics of its endpoints.
    """

    def __init__(self) -> None:
        self._services: dict[bytes, set[bytes]] = {}

    def endpoint_seen(self, participant: bytes, topic: str) -> bool:
        """An endpoint of a participant appeared; True when that tells for the first time what it is."""
        if topic not in SERVICE_TOPICS:
            return False
        known = self._services.setdefault(_family(participant), set())
        known.add(participant)
        return len(known) == 1

    def gone(self, participant: bytes) -> None:
        """A participant left."""
        family = _family(participant)
        known = self._services.get(family, set())
        known.discard(participant)
        if not known:
            self._services.pop(family, None)

    def is_one(self, participant: bytes) -> bool:
        """Whether a participant is a service, or of a federation of OpenSplice."""
        return _family(participant) in self._services or (
            _is_federated(participant) and participant[:2] not in _VENDORS
        )


def _family(participant: bytes) -> bytes:
    """What the participants of one federation have in common; a participant itself for others."""
    return participant[:4] if _is_federated(participant) else participant
