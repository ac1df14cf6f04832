"""Requests of clients that a service must remember."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from engine.core.purging import FOREVER_NS
from engine.core.settings import PendingWriter
from engine.dds.cdr import Malformed
from engine.dds.client_protocol.messages import HistoryRequest, StateRequest

if TYPE_CHECKING:
    from engine.client_service.storage import StorageQuestion

MAX_WAIT_S: Final = 86_400.0
"""Limit for the time in which tombstones wait for a durable writer that is silent."""
MAX_ID: Final = 64
"""Limit for the digits of a durable writer's identity."""
MAX_NAMES: Final = 4_096
"""Limit for the characters of its topic and partitions together."""

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


@dataclasses.dataclass(slots=True)
class HeldDeletion:
    """A deletion that this node has carried out in memory, and that waits for the disk or its deadline."""

    client: bytes
    deadline_s: float
    request: StateRequest
    barrier: int | None = None
    """Number of changes that the disk must have carried out; None until the deletion has been queued."""


def parse_pending(request: StateRequest, values: Any) -> PendingWriter:
    """Read what a durable writer tells of itself; `since_ns` is -1 if it has nothing to hand over any more.

    Args:
        request: the request, with its topic and partitions.
        values: our addition to it.

    Raises:
        Malformed: the addition is damaged, or the names are too long.
    """
    try:
        writer, since_ns = bytes.fromhex(values["id"]).hex(), values["since_ns"]
        wait_s = min(MAX_WAIT_S, float(values["wait_s"]))
    except (TypeError, KeyError, ValueError, OverflowError):
        raise Malformed("our addition does not say what is pending") from None
    size = len(request.topic) + sum(map(len, request.partitions))
    if not isinstance(since_ns, int | None) or not 0 < len(writer) <= MAX_ID or size > MAX_NAMES:
        raise Malformed("our addition does not say what is pending")
    since_ns = -1 if since_ns is None else max(0, min(since_ns, FOREVER_NS))
    return PendingWriter(writer, request.topic, request.partitions, since_ns, wait_s)
