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
    """A request that waits for its time."""

    client: bytes
    deadline_s: float
    request: HistoryRequest


@dataclasses.dataclass(slots=True)
class Question:
    """A state request that waits for what it asks about."""

    client: bytes
    deadline_s: float
    request: StateRequest
    storage: StorageQuestion
