"""What clients have asked for, as long as a service must remember it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from engine.dds.client_protocol.messages import HistoryRequest, StateRequest

if TYPE_CHECKING:
    from engine.client_service.storage import StorageQuestion

Way = tuple[bytes, str, tuple[str, ...], tuple[str, ...]]
"""One reader of a client: who asks again for the same is the same reader."""


def way_of(request: HistoryRequest) -> Way:
    """The reader that sent a request."""
    return request.request.client, request.topic, request.partitions, request.alignment_partitions


@dataclasses.dataclass(slots=True)
class HeldRequest:
    """A request that waits for its time.

    `followed` are the name-spaces of which this node kept the client up to date when it asked: it answers for
    these, whoever is their master now.
    """

    client: bytes
    deadline_s: float
    request: HistoryRequest
    followed: frozenset[str] = frozenset()


@dataclasses.dataclass(slots=True)
class Question:
    """A state request that waits for what it asks about."""

    client: bytes
    deadline_s: float
    request: StateRequest
    storage: StorageQuestion


@dataclasses.dataclass(slots=True)
class Follower:
    """A client that is kept up to date.

    `given` has the digests of what it was given of a name-space, until `tail_s`: then it gets what came into
    the set meanwhile.
    """

    client: bytes
    request: HistoryRequest
    name_spaces: frozenset[str]
    given: dict[str, set[bytes]]
    tail_s: float
