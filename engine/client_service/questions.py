"""Requests of clients that a service must remember."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from engine.dds.client_protocol.messages import HistoryRequest, StateRequest

if TYPE_CHECKING:
    from engine.client_service.storage import StorageQuestion

Way = tuple[bytes, str, tuple[str, ...], tuple[str, ...]]
"""Identity of a client's reader: a repeated request for the same comes from the same reader."""


def way_of(request: HistoryRequest) -> Way:
    """Return the identity of the reader that sent a request."""
    return request.request.client, request.topic, request.partitions, request.alignment_partitions


@dataclasses.dataclass(slots=True)
class HeldRequest:
    """A request for history that waits for complete sets or its deadline."""

    client: bytes
    deadline_s: float
    request: HistoryRequest


@dataclasses.dataclass(slots=True)
class Question:
    """A state request that waits for its samples or its deadline."""

    client: bytes
    deadline_s: float
    request: StateRequest
    storage: StorageQuestion
